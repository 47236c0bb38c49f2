"""Stored findings about papers are of the figures that their tables say, with the verdicts of the closed cases."""

from pathlib import Path

import pytest

from ctxbench.model.read_suite import read_published
from ctxbench.plugins.audit.finding import Verdict, read
from ctxbench.plugins.audit.recounted import RecountedTable

ROOT = Path(__file__).parents[2]
FOUND = {path.stem: read(path) for path in (ROOT / "results" / "recount-2026").glob("*.csv")}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_findings_are_of_the_printed_figures(name: str) -> None:
    table = read_published(str(ROOT / "research" / "papers" / f"{name}.toml"), RecountedTable)
    printed = [(row, key, text) for row, about in table.rows.items() for key, text in about.printed.items()]
    assert [(each.row, each.quantity, each.printed) for each in FOUND[name]] == printed


def test_closed_cases_are_of_the_counters_that_printed_them() -> None:
    assert {each.verdict for each in FOUND["vit3"]} == {Verdict.EQUAL}
    mk_unet = [each for each in FOUND["mk_unet"] if each.quantity == "macs"]
    assert all(each.why.startswith("as ptflops@0.7 counts (") for each in mk_unet)
    fused = [each for each in FOUND["mamba_lite_unet"] if each.row == "Mamba by its fused kernel"]
    assert all(each.verdict == Verdict.CONVENTION and each.why.startswith("as thop@0.1.1 counts") for each in fused)
    few_digits = [each for each in FOUND["ultra_lbm_unet"] if each.quantity == "macs"]
    assert {each.verdict for each in few_digits} == {Verdict.NOT_REPRODUCED}
