"""The control workload's time: blocks on a fake clock, and the columns."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_clock import FakeClock

import ctxbench
from ctxbench.devices import device
from ctxbench.model.control import Control, control_columns
from ctxbench.model.messages import Sample

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


@pytest.mark.at_rest
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
        assert row["control_processes"] == {1: row["control_ms"]}


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_without_latency_there_is_no_control(suite_file: SuiteFile, tmp_path: Path) -> None:
    run = ctxbench.run(str(suite_file(["sa"], metrics=("params", "memory"))), out=tmp_path / "run")
    assert math.isnan(run.frame["control_ms"][0])
    assert run.samples.empty
