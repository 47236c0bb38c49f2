"""Summary of a page: exact sentences for plain runs, ties, failed rows, single rows and several runs."""

import json
from pathlib import Path

import pytest
from report_data import add, definition, medians, new_run, record, stream, table3_run, texts, timed

from ctxbench.report.panels import panels_of
from ctxbench.report.run_data import open_run
from ctxbench.report.summary import comparison_sentences, run_sentences
from ctxbench.report.tables.runs import compare_runs
from ctxbench.report.tables.suite import suite_table

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def sentences(path: Path) -> list[str]:
    (panel,) = panels_of([open_run(path)])
    found: list[str] = run_sentences(panel)
    return found


def test_a_run_says_who_is_best_and_by_which_factor(tmp_path: Path) -> None:
    assert sentences(table3_run(tmp_path / "run")) == [
        "ham_nmf has the fewest parameters, 0.500 M: 1.53x fewer than linear, the next, and 2.00x fewer than sa.",
        "linear has the fewest MACs, 13.0 G: 1.35x fewer than ham_nmf, the next, and 22.5x fewer than sa.",
        "ham_nmf has the least predicted training memory, 202 MiB: 1.49x less than linear, the next, "
        "and 26.0x less than sa.",
        "ham_nmf has the least inference latency, 307 ms: 1.298x [1.291, 1.306] less than linear, the next, "
        "and 26.7x [26.6, 26.8] less than sa.",
        "None of the 4 rows failed.",
    ]


def test_a_failed_row_is_not_compared_but_named(tmp_path: Path) -> None:
    found = sentences(table3_run(tmp_path / "run", failed=["sa", "da"]))
    assert found[0] == "ham_nmf has the fewest parameters, 0.500 M: 1.53x fewer than linear, the next."
    assert found[-1] == "2 of 4 rows failed: sa (oom) and da (oom)."
    assert sentences(table3_run(tmp_path / "one", failed=["sa", "da", "linear"])) == [
        "Only ham_nmf ended ok: 0.500 M parameters, 17.6 G MACs, 202 MiB predicted training memory and "
        "307 ms inference latency.",
        "3 of 4 rows failed: sa (oom), da (oom) and linear (oom).",
    ]
    assert sentences(table3_run(tmp_path / "none", failed=["sa", "da", "linear", "ham_nmf"])) == [
        "All 4 rows failed: sa (oom), da (oom), linear (oom) and ham_nmf (oom)."
    ]


def test_many_failed_rows_are_counted(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    add(folder, record("sa"))
    for name in "abcdefg":
        add(folder, record(name, status="timeout"))
    add(folder, record("a", dtype="bfloat16", hparams="{} ", status="timeout"))
    assert sentences(folder.path)[-1] == (
        "8 of 9 rows failed: a (timeout, 2 rows), b (timeout), c (timeout), d (timeout), e (timeout) and 2 more."
    )


def test_ties_say_that_they_are_ties(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    times = {"sa": 30.0, "da": 10.0, "linear": 10.01, "ham_nmf": 10.02}
    for seed, (module, median) in enumerate(times.items()):
        row = record(module, params=2**20, macs=400 if module == "sa" else 200, memory_train_predicted_bytes=None)
        add(folder, row, timed(row, {"infer": stream(median, seed=seed)}))
    assert sentences(folder.path) == [
        "All 4 rows have the same number of parameters, 1.05 M.",
        "da, linear and ham_nmf have the fewest MACs, 200: 2.00x fewer than sa, the next.",
        "ham_nmf has the least inference latency, 9.99 ms, statistically tied with da and linear: 2.99x [2.97, 3.02] "
        "less than sa, the next.",
        "None of the 4 rows failed.",
    ]


def test_counts_that_are_close_are_told_apart_in_percent(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module, macs in (("sa", 100_010), ("da", 100_000)):
        add(folder, record(module, macs=macs, params=1, memory_train_predicted_bytes=None))
    assert sentences(folder.path)[1] == "da has the fewest MACs, 100 K: 0.01 % fewer than sa, the next."


def test_a_report_of_recall_says_what_was_found_on_which_input(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module, lookup in (("sa", 95.0), ("da", 85.0), ("linear", 40.0), ("ham_nmf", 10.0)):
        found = {"accuracies": [lookup] * 5, "learned": 5 * (lookup >= 80), "cells": 64}
        curve = {"segment": {"accuracy": lookup / 2, **found}, "lookup-8": {"accuracy": lookup, **found}}
        add(folder, record(module, recall_segment=lookup / 2, recall_lookup=lookup, recall_curve=json.dumps(curve)))
    assert sentences(folder.path)[0] == "Recall, segment (mean IoU of noisy regions): from 5 % (ham_nmf) to 48 % (sa)."
    assert sentences(folder.path)[1] == (
        "Recall, lookup (accuracy from a partner with the same mark): 2 of 4 rows reach 80 %: sa and da; "
        "1 learned nothing of it."
    )
    table = suite_table(open_run(folder.path))
    assert table.title.endswith(": accuracy on scenes [64, 8, 8], costs at [1, 512, 128, 128]")
    assert texts(table, "recall_lookup")[:2] == ["95 (5 of 5)", "85 (5 of 5)"]


def test_two_rows_that_tie_in_everything(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for seed, module in enumerate(("da", "linear")):
        row = record(module, params=0, macs=500, memory_train_predicted_bytes=2**20)
        add(folder, row, timed(row, {"infer": stream(10.0, seed=seed)}))
    assert sentences(folder.path) == [
        "Both rows have no parameters.",
        "Both rows have the same number of MACs, 500.",
        "Both rows have the same predicted training memory, 1.00 MiB.",
        "da has the least inference latency, 9.96 ms, statistically tied with linear.",
        "None of the 2 rows failed.",
    ]


def test_no_block_is_compared_with_none(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module, ms in (("identity", 0.001), ("lka", 0.5), ("sa", 30.0), ("da", 9.0), ("linear", 1.0)):
        family = {"identity": "none", "lka": "large kernel", "linear": "linear attention"}.get(module, "attention")
        row = record(module)
        row.family = family
        add(folder, medians(row, [ms] * 3))
    found = sentences(folder.path)
    assert found[0] == "Not ranked by cost, because they do not mix distant positions: identity and lka."
    assert not any("identity" in sentence or "lka" in sentence for sentence in found[1:])


def test_times_without_a_verdict_are_left_out_and_named(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    add(folder, medians(record("sa"), [30.0, 30.0, 30.0]))
    add(folder, medians(record("da"), [9.0, 9.0, 9.0], others_share=0.87))
    add(folder, medians(record("linear"), [1.0, 1.0]))
    assert sentences(folder.path)[-2] == (
        "Not compared in inference latency: linear (fewer than 3 processes) and da (other work kept 87% of the cores "
        "busy)."
    )
    add(folder, medians(record("ham_nmf"), [10.0, 10.0, 10.0]))
    assert sentences(folder.path)[-2] == (
        "ham_nmf has the least inference latency, 10.00 ms: 3.000x [3.000, 3.000] less than sa, the next; "
        "not compared: linear (fewer than 3 processes) and da (other work kept 87% of the cores busy)."
    )


def test_no_parameters_is_no_ratio(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module, params in (("free", 0), ("sa", 2**20)):
        add(folder, record(module, params=params))
    assert sentences(folder.path)[0] == "free has no parameters; next comes sa with 1.05 M."


def test_a_single_row_gives_its_numbers(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    add(folder, record("sa", "meta"))
    assert sentences(folder.path) == [
        "sa is the only row: 1.00 M parameters, 292 G MACs and 5253 MiB predicted training memory."
    ]
    failed = new_run(tmp_path / "failed")
    add(failed, record("sa", status="crashed"))
    assert sentences(failed.path) == ["The only row failed: sa (crashed)."]


def test_only_rows_under_the_same_conditions_are_compared(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module in ("sa", "linear"):
        add(folder, record(module))
    add(folder, record("sa", dtype="bfloat16", hparams='{"d": 1}'))
    assert sentences(folder.path)[0] == (
        "Compared here: the 2 rows with 2 threads, input [1, 512, 128, 128], float32; "
        "1 row under other conditions is in the table."
    )


def test_several_runs_say_how_they_differ(tmp_path: Path) -> None:
    one = table3_run(tmp_path / "one", failed=["sa"])
    runs = [open_run(path) for path in (one, table3_run(tmp_path / "two", scale=2.0))]
    assert comparison_sentences(runs, compare_runs(runs)) == [
        "Training latency in two is 2.00 times that in one (median of 3 rows); "
        "in 3 of 3 rows the interval of the ratio does not contain 1.",
        "Inference latency in two is 2.00 times that in one (median of 3 rows); "
        "in 3 of 3 rows the interval of the ratio does not contain 1.",
        "one: 1 of 4 rows failed: sa (oom).",
        "two: None of the 4 rows failed.",
    ]
    static = []
    for name in ("three", "four"):
        folder = new_run(tmp_path / name)
        add(folder, record("sa", "meta"))
        static.append(open_run(folder.path))
    assert comparison_sentences(static, compare_runs(static)) == [
        "No number differs between the runs, where more than one of them has it.",
        "No row of any run failed.",
    ]
