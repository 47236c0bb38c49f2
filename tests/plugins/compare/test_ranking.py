"""Rankings: order, front, ratios with their intervals, sentences."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_data import cell, notes_of

from ctxbench.base.number import Number
from ctxbench.model.metrics import quantity
from ctxbench.plugins.compare.comparison import _beside_eager
from ctxbench.plugins.compare.ranking import Ranking, Standing, front, ranked, sentences
from ctxbench.plugins.compare.table import execution_table, ranking_table
from ctxbench.table.table import Cell, TableColumn


def ranking(**values: tuple[float, float]) -> Ranking:
    """A candidate and another row with these values."""
    rows = [Standing(label, at == 0, {k: Number(v[at]) for k, v in values.items()}) for at, label in enumerate("ab")]
    return Ranking("here", "predicted for CUDA", rows)


@pytest.mark.plugin("energy")
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


@pytest.mark.plugin("predict")
@pytest.mark.parametrize("high", [3.9, 2.2])
def test_a_predicted_time_of_which_too_little_is_known_is_in_no_cell_and_no_sentence(high: float) -> None:
    """Of `compare --for`; where the order is known nevertheless, the ratio stands with its band."""
    why = "72% of the time is in FFT, which nothing measured"
    ends = {"mine": (1.234, 1.1, 3.9), "other": (high - 0.1, high - 0.2, high)}
    rows = [
        Standing(
            label,
            label == "mine",
            {"latency_infer": Number(*own, origin="predicted", errors={"FFT": 0.5}, unknown=why)},
        )
        for label, own in ends.items()
    ]
    table = ranking_table(Ranking("here", "predicted for CUDA", rows), "latency_infer")
    cells = [cell(table, label, "latency_infer") for label in ends]
    assert [each.text for each in cells] == ["not known", "not known"]
    assert notes_of(table, cells[0]) == notes_of(table, cells[1]) == [f"Not known: {why}."]
    ratio = cell(table, "other", "latency_infer_ratio").text
    assert ratio == "=" or re.fullmatch(r"\d\.\d+ \[\d\.\d+, \d\.\d+\]", ratio)
    said = [*table.caption, *sentences(rows)]
    assert "Ranked by Time, infer; x: times mine's, of a time with its 80 % band; =: that band contains 1." in said
    assert not any(re.search(r"95 %|about the same|\d ms", each) for each in said)


def test_the_front_leaves_out_what_other_work_disturbed_as_the_sentence_does() -> None:
    rows = [
        Standing(
            label, label == "a", {"params": Number(params), "latency_infer": Number(time, time, time, others_share=0.9)}
        )
        for label, params, time in (("a", 10, 1.0), ("b", 20, 1.1))
    ]
    table = ranking_table(Ranking("here", "predicted for CUDA", rows), "latency_infer")
    assert [cell(table, label, "front").text for label in "ab"] == ["yes", ""]
    assert "Front: no other row is known to be better in parameters." in table.caption
    assert sentences(rows)[0] == "On the Pareto front of parameters: a."


def test_columns_of_plugins_are_of_modules_with_their_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def columns(keys: list[str]) -> tuple[list[tuple[TableColumn, list[Cell]]], str]:
        return [(TableColumn("gain", "gain", "mIoU", "published"), [Cell(key) for key in keys])], "Gains are published."

    monkeypatch.setattr("ctxbench.report.beside.loaded", lambda kind: {"beside": [columns]}[kind])
    labels = ("mine", "sa", "sa (heads=2)")
    rows = [Standing(label, label == "mine", {"params": Number(1)}, module=label.split()[0]) for label in labels]
    table = ranking_table(Ranking("here", "", rows), "params")
    assert [cell(table, label, "gain").text for label in labels] == ["mine", "sa", ""]
    assert table.caption[-1] == "Gains are published."


def test_a_table_without_times_says_nothing_of_times() -> None:
    found = ranking(params=(1.0, 2.0), macs=(3.0, 4.0))
    table = ranking_table(found, "latency_infer")
    assert [row.module for row in table.rows] == ["a", "b"]
    assert table.caption[:2] == (
        "Ranked by Params; x: times a's.",
        "Front: no other row is known to be at least as good in parameters and MACs, and better in one of these.",
    )
    told = "\n".join([*table.caption, *table.notes, *sentences(found.standings)]).lower()
    assert not any(word in told for word in ("time,", "latency", "round", "memory", "interval"))


def test_a_table_without_numbers_is_ranked_by_none() -> None:
    assert ranking_table(ranking(), "latency_infer").caption[0] == "x: times a's."


def test_what_notes_say_of_a_number_is_a_footnote() -> None:
    row = Standing("a", True, {"params": Number(1)}, notes={"params": ["Half of them are frozen."]})
    table = ranking_table(Ranking("here", "", [row]), "params")
    assert notes_of(table, cell(table, "a", "params")) == ["Half of them are frozen."]


def setting(heads: int, kernel: int, params: float, macs: float, time: float, status: str = "ok") -> Standing:
    rounds = {n: time * (1 + n / 1000) for n in (1, 2, 3)}
    values = {
        "params": Number(params),
        "macs": Number(macs),
        "latency_infer": Number(time, 0.9 * time, 1.1 * time, processes=rounds, origin="measured"),
    }
    settings = {"heads": heads, "kernel": kernel}
    label = f"A (heads={heads}, kernel={kernel})"
    return Standing(label, True, values if status == "ok" else {}, status, "", "A", "A", settings)


def test_settings_are_columns_and_each_hyper_parameter_has_a_sentence_on_its_cost() -> None:
    rows = [
        setting(16, 3, 100, 30, 2.0),
        setting(4, 3, 100, 10, 2.0),
        setting(16, 5, 300, 80, 6.0),
        setting(4, 5, 200, 20, 6.0),
        Standing("sa", False, {"params": Number(1), "macs": Number(1), "latency_infer": rows_time(1.0)}),
    ]
    table = ranking_table(Ranking("here", "", rows), "macs")
    assert [c.header for c in table.columns[:5]] == ["#", "Module", "heads", "kernel", "Front"]
    assert [[each.text for each in row.cells[1:4]] for row in table.rows] == [
        ["sa", "", ""], ["> A", "4", "3"], ["> A", "4", "5"], ["> A", "16", "3"], ["> A", "16", "5"],
    ]  # fmt: skip
    assert list(table.data["heads"].dropna()) == [4, 4, 16, 16]
    assert sentences(rows) == [
        "On the Pareto front: sa.",
        "A, heads=16 over heads=4 at each of 2 settings of kernel: 1.00x to 1.50x the parameters and 3.00x to 4.00x "
        "the MACs; no clear difference in inference latency.",
        "A, kernel=5 over kernel=3 at each of 2 settings of heads: 2.00x to 3.00x the parameters, 2.00x to 2.67x the "
        "MACs and 3.000x [3.000, 3.000] the inference latency.",
    ]


def rows_time(value: float) -> Number:
    return Number(value, 0.9 * value, 1.1 * value, processes={1: value, 2: value, 3: value}, origin="measured")


def test_a_setting_that_failed_costs_nothing_and_words_are_in_their_order() -> None:
    rows = [setting(4, 3, 100, 10, 2.0), setting(16, 3, 150, 10, 2.0), setting(64, 3, 0, 0, 0, status="oom")]
    assert sentences(rows)[1:] == [
        "A, heads=16 over heads=4: 1.50x the parameters; the same MACs; no clear difference in inference latency."
    ]


def test_sentences_do_not_grow_as_rows_times_candidates() -> None:
    settings = [
        Standing(f"A{a}{b}{c}{d}{e}", True, {"params": Number(1 + a + b)}, module="A", name="A",
                 settings={"a": a, "b": b, "c": c, "d": d, "e": e, "f": 0})
        for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1) for e in (0, 1)
    ]  # fmt: skip
    found = sentences(settings)
    assert len(found) == 5
    assert found[-1] == "The table has what 2 more hyper-parameters cost."
    candidates = [Standing(f"mine{n}", True, {"params": Number(n + 10)}) for n in range(3)]
    others = [Standing(f"other{n}", False, {"params": Number(n + 11)}) for n in range(20)]
    assert sentences([*candidates, *others])[1:] == [
        "mine0 in parameters: dominates mine1, mine2, other0, other1, other2, other3 and 16 more.",
        "mine1 in parameters: dominates mine2, other1, other2, other3, other4, other5 and 14 more; is dominated by "
        "mine0; neither holds for 1 other row.",
        "mine2 in parameters: dominates other2, other3, other4, other5, other6, other7 and 12 more; is dominated by "
        "mine0, mine1 and other0; neither holds for 1 other row.",
    ]


def test_other_executions_stand_beside_eager_with_their_ratio_to_it() -> None:
    def rows(factor: float, status: str = "ok") -> list[Standing]:
        return [
            Standing(
                label, label == "mine", {"latency_infer": rows_time(factor * time)} if status == "ok" else {}, status
            )
            for label, time in (("mine", 2.0), ("sa", 4.0))
        ]

    others = {"onnxruntime": rows(0.5), "compile": [rows(1.0)[0], rows(1.0, "error")[1]]}
    eager = [replace(row, values={**row.values, "latency_train": rows_time(9.0)}) for row in rows(1.0)]  # of it alone
    table = execution_table(Ranking("here", "", eager, others))
    assert [column.name for column in table.columns] == [
        "Module", "Time, infer (ms), eager: value",
        "Time, infer (ms), onnxruntime: value", "Time, infer (ms), onnxruntime: x",
        "Time, infer (ms), compile: value", "Time, infer (ms), compile: x",
    ]  # fmt: skip
    texts = [[each.text for each in row.cells] for row in table.rows]
    assert [row[3] for row in texts] == ["0.5000 [0.5000, 0.5000]"] * 2
    assert (texts[0][5], texts[1][4:]) == ("=", ["error", ""])


def test_rankings_of_several_executions_are_one_with_eager() -> None:
    alone = {name: Ranking(name, "", []) for name in ("compile", "onnxruntime")}
    assert list(_beside_eager(alone)) == [*alone.values()]
    (found,) = _beside_eager({"eager": Ranking("eager", "", []), **alone})
    assert (found.condition, [*found.others]) == ("eager", ["compile", "onnxruntime"])
