"""Both halves of the blocks are tried on a calibrated processor, and each time stands beside its prediction."""

from pathlib import Path

import calibrated_field
import pytest
from fit_hopper import in_half_a

from ctxbench.plugins.predict.sheet import sheet
from ctxbench.report.run_data import open_run

RESULTS = Path(__file__).resolve().parents[2] / "results" / "prediction"


def test_half_of_the_blocks_are_of_the_half_that_nothing_was_looked_at() -> None:
    halves = [in_half_a(name) for name in calibrated_field.BLOCKS]
    assert (halves.count(True), halves.count(False)) == (6, 6)


def test_a_measured_time_stands_beside_its_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = open_run(RESULTS / "field")
    rows = [row for row in measured.rows if row["module"] in ("gc", "se")][:2]
    run = type("Run", (), {"rows": rows})
    monkeypatch.setattr(calibrated_field, "open_run", lambda path: run)
    found = list(calibrated_field.beside_each_other(Path("run"), sheet(str(RESULTS / "cpu.toml"))))
    assert [each["mode"] for each in found] == ["infer", "train"] * 2
    assert [each["half"] for each in found] == ["A" if row["module"] == "gc" else "B" for row in rows for _ in range(2)]
    for each, row in zip(found[::2], rows, strict=True):
        assert float(str(each["measured_ms"])) == pytest.approx(row["latency_infer_ms"], rel=1e-4)
        assert float(str(each["low_ms"])) < float(str(each["predicted_ms"])) < float(str(each["high_ms"]))
