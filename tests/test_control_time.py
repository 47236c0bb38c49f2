"""The control workload's time: blocks on a fake clock, the columns, and how two rounds pool it."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

import ctxbench
from ctxbench.devices import device
from ctxbench.engine.rounds import pool
from ctxbench.engine.scheduler import Outcome
from ctxbench.messages import Sample
from ctxbench.metrics.control import Control, control_columns
from ctxbench.results import Record

SuiteFile = Callable[..., Path]


def control(*pass_s: float) -> Control:
    """The control workload on a clock whose passes take these seconds in turn."""
    return Control(device("cpu"), FakeClock(itertools.cycle(pass_s)))


def test_a_block_takes_its_time_in_samples_that_are_long_enough() -> None:
    samples = control(0.001).block()
    assert {sample.passes for sample in samples} == {4}  # 4 ms a sample
    assert len(samples) == 13  # the first that ends after 50 ms
    assert [sample.ms for sample in samples] == pytest.approx([1.0] * 13)
    assert samples[-1].at_s == pytest.approx(0.052)


def test_a_slow_machine_still_gives_three_samples_a_block() -> None:
    slow = control(0.2)
    assert len(slow.block()) == 3
    samples = slow.block()
    assert [sample.passes for sample in samples] == [1] * 6
    assert [round(sample.at_s, 6) for sample in samples] == [0.2, 0.4, 0.6, 1.4, 1.6, 1.8]  # 0.6 s warm up the second


def test_the_columns_are_the_median_and_its_interval() -> None:
    streams = [Sample(0.1 * i, 1, float(ms)) for i, ms in enumerate([3, 1, 2, 5, 4, 7, 6, 9, 8])]
    columns = control_columns(streams)
    assert columns == {"control_ms": 5.0, "control_low_ms": 1.0, "control_high_ms": 9.0}
    independent = [Sample(0.1 * i, 1, float(1 + 37 * i % 101)) for i in range(101)]
    assert control_columns(independent) == {"control_ms": 51.0, "control_low_ms": 41.0, "control_high_ms": 61.0}


def one_round(stream: Sequence[float], status: str = "ok", **values: Any) -> Outcome:
    facts: Mapping[str, Any] = {
        "module": "sa", "title": "SA", "family": "attention", "reference": "m:C", "hparams": "{}", "batch": 1,
        "channels": 8, "height": 4, "width": 4, "dtype": "float32", "memory_format": "contiguous",
        "execution": "eager", "threads": None, "device": "cpu",
    }  # fmt: skip
    samples = [Sample(0.1 * (i + 1), 2, ms) for i, ms in enumerate(stream)]
    record = Record(case="sa", **{**facts, "status": status})
    record.take(values)
    return Outcome(record, {"control": samples} if samples else {}, {})


def test_two_rounds_pool_the_samples_of_both() -> None:
    outcome = one_round([1, 2, 3], control_ms=2.0)
    pool(outcome, one_round([6, 7, 8], control_ms=7.0))
    samples = outcome.samples
    columns = ("control_ms", "control_low_ms", "control_high_ms")
    assert [outcome.record.get(column) for column in columns] == [4.5, 1, 8]
    assert [sample.ms for sample in samples["control"]] == [1, 2, 3, 6, 7, 8]
    assert [round(sample.at_s, 6) for sample in samples["control"]] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_a_second_round_that_failed_leaves_the_first_ones_control() -> None:
    outcome = one_round([1, 2, 3], control_ms=2.0)
    pool(outcome, one_round([], "crashed"))
    assert (outcome.record.status, outcome.record.get("control_ms")) == ("crashed", 2.0)
    assert len(outcome.samples["control"]) == 3


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_every_timed_case_of_a_run_has_its_control(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = str(suite_file(["sa", "linear"], metrics=("params", "latency")))
    run = ctxbench.run(suite, out=tmp_path / "run")
    samples = run.samples[run.samples["mode"] == "control"]
    for row in run.frame.to_dict("records"):
        own = samples.loc[samples["case"] == row["case"], "ms"]
        assert len(own) >= 9  # three blocks
        assert row["control_ms"] == own.median()
        assert 0 < row["control_low_ms"] <= row["control_ms"] <= row["control_high_ms"]


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_without_latency_there_is_no_control(suite_file: SuiteFile, tmp_path: Path) -> None:
    run = ctxbench.run(str(suite_file(["sa"], metrics=("params", "memory"))), out=tmp_path / "run")
    assert math.isnan(run.frame["control_ms"][0])
    assert run.samples.empty
