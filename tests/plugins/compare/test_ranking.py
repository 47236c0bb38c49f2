"""Rankings: order, front, ratios with their intervals, sentences."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ctxbench.base.number import Number
from ctxbench.model.metrics import quantity
from ctxbench.plugins.compare.ranking import Ranking, Standing, front, ranked, sentences
from ctxbench.plugins.compare.table import ranking_table
from ctxbench.table.table import Cell, Table


def cell(table: Table, module: str, column: str) -> Cell:
    place = [c.key for c in table.columns].index(column)
    return next(row.cells[place] for row in table.rows if row.module == module)


def notes_of(table: Table, found: Cell) -> list[str]:
    return [table.notes[number - 1] for number in found.notes]


def ranking(**values: tuple[float, float]) -> Ranking:
    """A candidate and another row with these values."""
    rows = [Standing(label, at == 0, {k: Number(v[at]) for k, v in values.items()}) for at, label in enumerate("ab")]
    return Ranking("here", "predicted for CUDA", rows)


def test_a_ranking_by_another_quantity_shows_it(tmp_path: Path) -> None:
    table = ranking_table(ranking(params=(2**20, 2**21), energy_infer=(4.0, 2.0)), "energy_infer")
    assert [row.module for row in table.rows] == ["b", "a"]
    assert [cell(table, "b", key).text for key in ("params", "energy_infer", "energy_infer_ratio")] == [
        "2.10", "2.00", "0.50"
    ]  # fmt: skip
    assert table.caption[0].startswith("Ranked by Energy, infer; x: times a's")
    assert any(line.startswith("Energy: joules per pass") for line in table.caption)


def test_larger_may_be_better(monkeypatch: pytest.MonkeyPatch) -> None:
    larger = replace(quantity("params"), better="larger", comparative="more")
    monkeypatch.setattr(
        "ctxbench.plugins.compare.ranking.quantity", lambda key: larger if key == "params" else quantity(key)
    )
    rows = ranking(params=(10.0, 20.0), macs=(1.0, 2.0)).standings
    assert [row.label for row in ranked(rows, "params")] == ["b", "a"]
    assert front(rows, ["params"]) == [rows[1]]
    assert sentences(rows)[-1] == "a: 2.00x fewer MACs than b, for 0.50x its parameters."


def test_a_ranking_shows_ratios_with_their_intervals() -> None:
    times = {
        "mine": Number(10, 9, 11, processes={1: 9.0, 2: 10.0, 3: 11.0}),
        "slow": Number(16, 14, 18, processes={1: 14.4, 2: 15.9, 3: 17.8}),
        "same": Number(10, 9, 11, processes={1: 9.1, 2: 9.9, 3: 11.0}),
        "busy": Number(8, 8, 8.8, processes={1: 8.0, 2: 8.0, 3: 8.0}, others_share=0.9),
        "reused": Number(10.5, 10, 11),
        "few": Number(10, 0, math.inf, processes={1: 9.0}),
    }
    rows = [Standing(label, label == "mine", {"latency_infer": value}) for label, value in times.items()]
    table = ranking_table(Ranking("here", "predicted for CUDA", rows), "latency_infer")
    found = {label: cell(table, label, "latency_infer_ratio") for label in times}
    dash = "–"  # noqa: RUF001  # a dash for "none"
    assert {label: each.text for label, each in found.items()} == {
        "mine": "", "slow": "1.60 [1.57, 1.64]", "same": "=", "busy": dash, "reused": "=", "few": dash,
    }  # fmt: skip
    assert found["busy"].detail == "cannot be compared: other work kept 90% of the cores busy"
    assert notes_of(table, cell(table, "few", "latency_infer")) == ["Fewer than 3 processes: no interval."]
    caption = "\n".join(table.caption)
    for part in (
        "x: times mine's, of a time with its 95 % interval over rounds; =: that interval contains 1.",
        "Each round times every row in a fresh process, in another order.",
        "3 fresh processes, median of the process medians [95 % interval over processes]",
        "Measured in other rounds, so = where two intervals overlap: reused.",
    ):
        assert part in caption
