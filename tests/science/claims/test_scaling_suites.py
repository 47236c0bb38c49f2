"""The pages of the scaling suites decide their claims from the numbers: orders by hand, a small static run."""

from pathlib import Path

import pandas as pd
import pytest
from judge import findings
from report_data import record

import ctxbench
from ctxbench.model.record import columns
from ctxbench_science.claims.findings import Rows
from ctxbench_science.claims.of_ctxbench.scaling import exponent, growth
from ctxbench_science.claims.of_ctxbench.scaling_static import order

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

PAGES = Path(__file__).parents[3] / "docs" / "suites"


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
def test_orders_of_the_closed_forms(module: str, axis: str, expected: float) -> None:
    row = {"module": module, "hparams": "{}", "batch": 1, "channels": 64, "height": 64, "width": 64}
    assert order(row, axis) == pytest.approx(expected, abs=1e-3)


def test_a_small_static_run_decides_every_claim(tmp_path: Path) -> None:
    shapes = [(1, 16, side, side) for side in (64, 128, 256)] + [(b, 16, 64, 64) for b in (2, 4)]
    shapes += [(1, c, 64, 64) for c in (1024, 2048, 4096)]
    run = ctxbench.run(
        "scaling-static", modules=["sa", "linear"], shape=shapes, static=True, out=tmp_path / "run", in_process=True
    )
    frame = run.folder.frame()
    found = findings("scaling-static", frame)
    assert found[0] == ("supported", "holds: 2 of 2")
    assert found[1] == ("supported", "holds: 2 of 2; orders: 2.0: sa; 1.0: linear")
    assert "undecided" not in [each.verdict for each in found]
    frame.loc[frame["case"].str.startswith("sa 1x16x64x64"), "macs"] += 1
    text = "holds: 1 of 2; does not hold: 1 of 2 (sa 1 of 8 sizes)"
    assert findings("scaling-static", frame)[0] == ("not supported", text)


def timed(power: float, noise: float = 0, processes: int = 3) -> Rows:
    """A module with MACs linear in n, and times that are this power of n, every other one off by a factor."""
    rows = []
    for place, side in enumerate((8, 16, 32, 64)):
        ms = float(side**2) ** power * (1 + noise) ** (-1 if place % 2 else 1)
        found = record("some", shape=(1, 8, side, side), macs=side**2, latency_train_ms=ms)
        if processes > 2:
            found.take({"latency_train_low_ms": ms, "latency_train_high_ms": ms})
        rows.append(dict(zip(columns(), [found.get(name) for name in columns()], strict=True)))
    return Rows.of_run(rows)


@pytest.mark.parametrize(
    ("rows", "verdict", "text"),
    [
        (timed(1), "supported", "no faster: 1 of 1 (some 1.00 [1.00, 1.00] (MACs 1.00))"),
        (timed(1.5), "not supported", "no faster: 0 of 1; faster: 1 of 1 (some 1.50 [1.50, 1.50] (MACs 1.00))"),
        (timed(1, processes=1), "undecided", "no faster: 0 of 1; undecided: 1 of 1 (fewer than 3 processes)"),
    ],
)
def test_how_a_time_grows_beside_the_macs(rows: Rows, verdict: str, text: str) -> None:
    assert growth(rows, "H x W", "train") == (verdict, text)


def test_a_wide_interval_decides_nothing() -> None:
    rows = timed(1, noise=1.0)
    line = exponent(pd.Series({row["height"] ** 2: row["latency_train_ms"] for row in rows.rows}))
    assert line.low < 1 < 1.25 < line.high
    assert growth(rows, "H x W", "train").verdict == "undecided"


@pytest.mark.parametrize("name", ["scaling", "scaling-static", "precision"])
def test_each_suite_has_a_page_with_its_verdicts(name: str) -> None:
    text = (PAGES / f"{name.removesuffix('-static')}.md").read_text(encoding="utf-8")
    for part in ("**How.**", "## Limits", f"<!-- table: results/{name}-cpu verdicts -->", f"/{name}-cpu/records.csv"):
        assert part in text
