"""Tables of MACs that a counter's package printed are recognised by it; invented ones are not."""

import csv
import gzip
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from report_data import published

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.model.case import Case
from ctxbench.plugins.audit.child import count_case
from ctxbench.plugins.audit.finding import AuditFinding, Verdict
from ctxbench.plugins.audit.recount import Recount
from ctxbench.plugins.audit.recounted import RecountedTable
from ctxbench.plugins.audit.table import of_columns
from ctxbench.plugins.audit.verdicts import judge
from ctxbench.plugins.macs.tools import counters, full_name

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

PRINTED = Path(__file__).parents[3] / "results" / "counters" / "conventions.csv.gz"
BLOCKS = ("sa", "gc", "mhsa", "coord", "spectral", "external")
# Of these blocks torchprofile prints our own count.
NOT_ALONE = "torchprofile"
GREEN = {Verdict.EQUAL, Verdict.CONVENTION}


def counted(case: Case, names: Iterable[str]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    found = count_case(case, [*names])
    return found.values, found.missing


def of_package(tool: str) -> dict[str, float]:
    """Numbers that the real package printed, by block."""
    with gzip.open(PRINTED, "rt", encoding="utf-8", newline="") as file:
        return {
            row["case"]: float(row["printed"])
            for row in csv.DictReader(file)
            if f"{row['tool']}@{row['version']}" == full_name(tool) and not row["state"] and row["case"] in BLOCKS
        }


def audited(figures: Mapping[str, float], path: Path, **about: Any) -> list[AuditFinding]:
    rows = {name: {"printed": {"macs": f"{each / 1e3:.1f}K"}} for name, each in figures.items()}
    path.write_text("\n".join(f'{key} = "{value}"' for key, value in about.items()))
    table = RecountedTable.model_validate(published(rows, shape=[1, 64, 64, 64], **about))
    return judge(Recount(path, table, counted))


@pytest.mark.drawn("audit", "tools")
@pytest.mark.parametrize("tool", [name for name in counters() if name != NOT_ALONE])
def test_a_column_that_a_counter_printed_is_recognised(tmp_path: Path, tool: str) -> None:
    found = audited(of_package(tool), tmp_path / "paper.toml")
    assert {each.verdict for each in found} <= GREEN
    (why,) = {each.why for each in found if each.verdict == Verdict.CONVENTION}
    assert f"as {full_name(tool)} counts" in why or "other reading" in why
    assert of_columns(found) == [f"macs: 6 of 6 figures are equal by one convention: {why}."]


@pytest.mark.parametrize("tool", ["ptflops", "calflops"])
def test_a_counter_that_the_source_names_is_its_own_convention(tmp_path: Path, tool: str) -> None:
    figures = of_package(tool)
    found = audited({**figures, "sa": 1.5 * figures["sa"]}, tmp_path / "paper.toml", tool=tool)
    assert [each.row for each in found if each.verdict != Verdict.EQUAL] == ["sa"]


def test_a_counter_of_products_is_named_beside_them_where_it_sees_all(tmp_path: Path) -> None:
    figures = of_package("flop-counter-mode")
    found = audited({name: figures[name] for name in ("sa", "gc", "coord", "external")}, tmp_path / "paper.toml")
    both = "matrix products and convolutions alone; as two operations a MAC or as flop-counter-mode@2.13.0 counts"
    assert {(each.verdict, each.why.partition(" (")[0]) for each in found} == {(Verdict.CONVENTION, both)}
    assert "less than 0.1 % of the figures near these would fit one" in found[0].why


def test_a_figure_that_a_counter_of_products_does_not_explain_keeps_it_from_being_named(tmp_path: Path) -> None:
    figures = of_package("flop-counter-mode")
    found = audited({**figures, "mhsa": 1.5 * figures["mhsa"]}, tmp_path / "paper.toml")
    assert "mhsa" in [each.row for each in found if each.verdict not in GREEN]
    assert not [each.row for each in found if "flop-counter-mode" in each.why]


@pytest.mark.parametrize(("printed", "named"), [("ptflops", ""), ("ptflops", "ptflops"), ("flop-counter-mode", "")])
def test_invented_figures_are_of_no_counter(tmp_path: Path, printed: str, named: str) -> None:
    chance = random.Random(0)
    figures = {name: each * chance.uniform(0.5, 2) for name, each in of_package(printed).items()}
    found = audited(figures, tmp_path / "paper.toml", tool=named)
    assert not GREEN & {each.verdict for each in found}


def test_a_counter_that_is_unknown_is_a_sentence_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"paper\.toml, line 1: .*ptflop.*ptflops"):
        audited(of_package("ptflops"), tmp_path / "paper.toml", tool="ptflop")


def test_a_counter_that_needs_another_input_leaves_the_other_counts(tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(
        "from torch import nn\n\n\nclass OfOneSize(nn.Module):\n    def __init__(self, channels):\n"
        "        super().__init__()\n\n    def forward(self, x):\n        return x * x.view(1, 8, 8, 8)\n"
    )
    entry = registry.get(f"{path}:OfOneSize")
    case = Case(entry.key, entry.reference, {}, (1, 8, 8, 8), entry.defaults, device="meta")
    found = count_case(case, ["macs", "macs_as_thop_0_1_1", "macs_as_thop_at_32_0_1_1"])
    assert found.values == {"macs": 512, "macs_as_thop_0_1_1": 0}
    assert "macs_as_thop_at_32_0_1_1" in found.missing
