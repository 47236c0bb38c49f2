"""Runs side by side in a table: ratios, their intervals, and rows that cannot be compared."""

import math
from pathlib import Path

import pytest
from report_data import add, cell, medians, new_run, notes_of, record, stream, table3_run, timed
from test_report_tables import table_of

from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number, ratio_of_runs
from ctxbench.table.table import Cell

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def test_a_disturbed_ratio_of_two_runs_has_no_interval(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    add(one, medians(record("sa"), [5.0, 5.1, 5.2]))
    add(two, medians(record("sa"), [10.0, 10.2, 10.4], others_share=1.3))
    table = table_of(one.path, two.path)
    found = cell(table, "sa", "latency_infer_ms_ratio_2")
    assert (found.text, found.best) == ("2.00", False)
    assert notes_of(table, found) == [
        "Background load above 10% of the cores during timing: "
        "ratios are not shown, and rows are ordered only where times differ clearly."
    ]  # fmt: skip


def test_runs_are_compared_in_every_quantity_that_they_have(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for folder, factor in ((one, 1.0), (two, 3.0)):
        add(folder, record("sa", energy_infer_j=factor, attention_entropy=0.1 * factor))
    table = table_of(one.path, two.path)
    assert cell(table, "sa", "energy_infer_j_ratio_2").text == "3.00"
    assert cell(table, "sa", "attention_entropy_2").text == "0.3000"
    assert not any(column.key.startswith("attention_entropy_ratio") for column in table.columns)
    assert any(line.startswith("Energy: joules per pass") for line in table.caption)


def test_a_row_without_macs_in_either_run_has_no_ratio(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for folder, macs in ((one, 7), (two, 8)):
        add(folder, record("sa", macs=macs))
        add(folder, record("da", macs=None, macs_counter=None))
    assert cell(table_of(one.path, two.path), "da", "macs_ratio_2") == Cell()


def test_runs_side_by_side_have_ratios_and_reasons(tmp_path: Path) -> None:
    one = table3_run(tmp_path / "one", failed=["sa"])
    two = table3_run(tmp_path / "two", scale=2.0)
    table = table_of(one, two)
    ratio = cell(table, "da", "latency_infer_ms_ratio_2")
    assert ratio.value == pytest.approx(2.0)
    assert ratio.best
    assert notes_of(table, cell(table, "sa", "latency_infer_ms_ratio_2")) == [
        "Not compared: in run 1 the row ended with oom."
    ]
    assert not any(column.key.startswith("params") for column in table.columns)
    assert any(line.startswith("The same in all runs: Params; MACs") for line in table.caption)


def test_rows_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    add(one, record("sa", macs_counter="torchprofile"))
    add(two, record("sa", macs=1))
    add(two, record("da"))
    table = table_of(one.path, two.path)
    reasons = {m: notes_of(table, cell(table, m, "macs_ratio_2"))[0] for m in ("sa", "da")}
    assert reasons == {
        "sa": "Not compared: MACs counted by torchprofile and by ctxbench.",
        "da": "Not compared: run 1 has no such row.",
    }


def test_a_row_that_only_one_run_has_says_so_where_everything_else_is_the_same(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for module in ("sa", "da"):
        add(one, record(module))
    add(two, record("sa"))
    table = table_of(one.path, two.path)
    assert [column.key for column in table.columns] == ["module"]
    assert notes_of(table, cell(table, "da", "module")) == ["Not compared: run 2 has no such row."]


def test_predictions_for_different_targets_are_not_compared(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    add(one, record("sa", memory_predicted_for="cuda-2020"))
    add(two, record("sa", memory_train_predicted_bytes=7))
    ratio = cell(table_of(one.path, two.path), "sa", "memory_train_predicted_bytes_ratio_2")
    assert ratio.detail == "Not compared: training memory predicted for cuda-2020 and for cuda."


def test_a_ratio_of_few_processes_is_never_bold(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    for folder, scale in ((one, 1.0), (two, 2.0)):
        row = record("sa")
        add(folder, row, timed(row, {"infer": [scale, 1.02 * scale], "train": stream(9 * scale)}))
    table = table_of(one.path, two.path)
    few, many = (cell(table, "sa", f"latency_{mode}_ms_ratio_2") for mode in ("infer", "train"))
    assert (few.value, few.best) == (2.0, False)
    assert notes_of(table, few) == ["Fewer than 3 processes: no interval of the ratio."]
    assert many.best
    assert not many.notes


def test_the_control_workload_says_how_two_runs_of_a_machine_differ(tmp_path: Path) -> None:
    one, two, old = (new_run(tmp_path / name) for name in ("one", "two", "old"))
    for module, ratio in (("sa", 1.5), ("da", 1.7), ("linear", 3.0)):
        add(one, record(module, control_ms=2.0))
        add(two, record(module, control_ms=2.0 * ratio))
        add(old, record(module))
    caption = table_of(one.path, old.path, two.path).caption
    assert [line for line in caption if line.startswith("The control workload")] == [
        "The control workload, the same work in every case, took 1.70 times as long in run 3 as in run 1 "
        "(median of 3 cases)."
    ]


def test_the_interval_of_a_ratio_of_runs_adds_both_on_a_log_scale() -> None:
    one, two = Number(10.0, 10 / 1.03, 10 * 1.03), Number(20.0, 20 / 1.04, 20 * 1.04)
    found = ratio_of_runs(two, one)
    assert found.value == 2
    assert found.ends == pytest.approx((2 / 1.0506, 2 * 1.0506), rel=1e-3)  # sqrt(ln 1.03^2 + ln 1.04^2) = ln 1.0506
    assert not ratio_of_runs(Number(20.0, 0.0, math.inf), one).has_interval


def test_of_runs_of_different_suites_the_rows_that_they_share_are_compared(tmp_path: Path) -> None:
    one, two = new_run(tmp_path / "one"), new_run(tmp_path / "two", suite="quick")
    add(one, record("sa"))
    add(one, record("da"))
    add(two, record("sa", params=7))
    table = table_of(one.path, two.path)
    assert (table.title, [row.module for row in table.rows]) == ("2 runs of table3 and quick", ["sa"])
    three = new_run(tmp_path / "three", suite="other")
    add(three, record("linear"))
    with pytest.raises(UsageError, match="the runs of table3 and other share no case"):
        table_of(one.path, three.path)
