"""The pages of the scaling suites decide their claims from the numbers: orders by hand, a small static run."""

import math
import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ctxbench
from ctxbench.suite.read import load

PAGES = Path(__file__).parents[1] / "docs" / "suites"


@pytest.fixture(scope="module")
def static() -> dict[str, Any]:
    return runpy.run_path(str(PAGES / "scaling-static.py"))


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return runpy.run_path(str(PAGES / "scaling.py"))


@pytest.mark.parametrize(
    ("module", "axis", "expected"),
    [
        ("sa", "H x W", 2),
        ("criss_cross", "H x W", 1.5),
        ("ham_nmf", "H x W", 1),
        ("linear", "H x W", 1),
        ("sa", "batch", 1),
        ("sa", "channels", 2),
    ],
)
def test_orders_of_the_closed_forms(static: dict[str, Any], module: str, axis: str, expected: float) -> None:
    row = pd.Series({"module": module, "hparams": "{}", "batch": 1, "channels": 64, "height": 64, "width": 64})
    assert static["order"](row, axis) == pytest.approx(expected, abs=1e-3)


def test_a_small_static_run_decides_every_claim(static: dict[str, Any], tmp_path: Path) -> None:
    shapes = [(1, 16, side, side) for side in (64, 128, 256)] + [(b, 16, 64, 64) for b in (2, 4)]
    shapes += [(1, c, 64, 64) for c in (1024, 2048, 4096)]
    run = ctxbench.run(
        "scaling-static", modules=["sa", "linear"], shape=shapes, static=True, out=tmp_path / "run", in_process=True
    )
    found = list(static["claims"](run.frame))
    assert [claim.partition(" grow")[0] for claim, _, _ in found] == [
        "MACs", "Memory of training", "Memory of inference", "MACs", "MACs",
    ]  # fmt: skip
    assert found[0][1].startswith("theory 2.0: sa; 1.0: linear")
    assert found[0][2] == "yes"


def test_a_time_that_grows_faster_than_macs_is_told(measured: dict[str, Any]) -> None:
    rows = [
        {"module": name, "batch": 1, "channels": 8, "height": side, "width": side, "macs": side**2,
         "latency_train_ms": side**power, "latency_infer_ms": math.nan}
        for name, power in (("slow", 3), ("fast", 2))
        for side in (8, 16, 32, 64)
    ]  # fmt: skip
    found = list(measured["claims"](pd.DataFrame(rows)))
    assert found[0][1] == "slow 1.50 [1.50, 1.50] (MACs 1.00); fast 1.00 [1.00, 1.00] (MACs 1.00)"
    assert found[0][2] == "for 1 of 2"
    assert found[1][2] == "not measured"


@pytest.mark.parametrize("name", ["scaling", "scaling-static", "precision"])
def test_each_suite_has_a_page_with_its_figures(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for heading in ("**Question.**", "**The paper's claim", "**What was measured.**", "Left out", "## Does it hold?"):
        assert heading in text
    for figure in load(name).file.figures:
        assert f"<!-- table: results/{name}-cpu {figure.name} -->" in text
