"""Latency on a fake clock: block length, when it stops, what it keeps; and the executor on a fake process."""

import itertools
import math
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_clock import FakeClock
from fakes import FakeExecutor

from ctxbench.base.mode import MODES
from ctxbench.base.notes import Note
from ctxbench.devices.clock import block_cost
from ctxbench.engine import one_process as scheduler
from ctxbench.engine.exit import Exit
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Quiet
from ctxbench.engine.rounds import execute
from ctxbench.metrics import latency as latency_metric
from ctxbench.metrics.latency import Latency, measure_latency
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Doing, Failure, MissingColumns, Samples, Values
from ctxbench.model.messages import Sample as Block
from ctxbench.model.metric import TimedPass
from ctxbench.model.metrics import metrics
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench.worker.protocol import Reply


def stream(mean_s: float, noise: float, seed: int = 0, phi: float = 0.0) -> Iterator[float]:
    """Pass times: AR(1) noise of the given share around `mean_s` seconds."""
    generator = np.random.default_rng(seed)
    state = 0.0
    while True:
        state = phi * state + float(generator.normal(0, noise)) * (1 - phi**2) ** 0.5
        yield mean_s * float(np.exp(state))


def measure(passes: Iterator[float], cost: float = 0.0, **settings: Any) -> tuple[Latency, int]:
    """Measure on a fake clock; also how many passes ran."""
    ran = itertools.count()
    clock = FakeClock(passes, cost)
    clock.time_block(lambda: next(ran), 1)
    latency = measure_latency(lambda: next(ran), clock, Measure(**settings))
    return latency, next(ran)


def test_constant_passes_end_by_the_interval() -> None:
    latency, passes = measure(itertools.repeat(0.01), warmup_s=0.045, sample_s=10)
    assert latency.stop == "interval"
    assert latency.summary.median == pytest.approx(10.0)
    assert latency.summary.low == latency.summary.high == pytest.approx(10.0)
    assert passes == 1 + 5 + len(latency.samples)  # the first pass, then 0.045 s of warm-up


def test_the_budget_ends_a_noisy_measurement() -> None:
    latency, _ = measure(stream(0.1, 0.5), warmup_s=0, sample_s=3)
    assert latency.stop == "budget"
    assert latency.samples[-1].at_s >= 3 > latency.samples[-2].at_s
    assert latency.summary.relative_half_width > 0.02


def test_a_pass_longer_than_the_sample_still_gives_the_least_number_of_samples() -> None:
    latency, passes = measure(itertools.repeat(20.0), warmup_s=1, sample_s=8, min_samples=3)
    assert (len(latency.samples), latency.stop, passes) == (3, "budget", 1 + 3 + 3)
    assert latency.summary.confidence < 0.95


def test_blocks_grow_until_the_clock_costs_under_a_thousandth() -> None:
    latency, _ = measure(itertools.repeat(1e-5), cost=2e-7, warmup_s=0, sample_s=0.01)
    assert {sample.passes for sample in latency.samples} == {20}
    assert latency.samples[0].ms == pytest.approx(1e-2, rel=1.1e-3)


def test_the_cost_of_a_block_is_that_of_an_empty_one() -> None:
    assert block_cost(FakeClock(iter(()), cost=3e-7)) == 3e-7


def test_the_papers_protocol_is_twenty_repeats_of_a_hundred() -> None:
    latency, passes = measure(itertools.repeat(0.001), protocol="paper", warmup_s=0)
    assert (len(latency.samples), latency.stop, passes) == (20, "protocol", 1 + 1 + 2000)
    assert latency.samples[3].passes == 100


def test_outliers_are_kept_and_counted() -> None:
    passes = itertools.chain([0.01], itertools.cycle([0.01, 0.0101, 0.0099, 0.01, 0.0102, 0.0098, 0.01, 0.05]))
    latency, _ = measure(passes, warmup_s=0, sample_s=1)
    spikes = sum(sample.ms > 40 for sample in latency.samples)
    assert spikes > 0
    assert latency.summary.outliers == spikes


def test_drift_is_the_second_half_over_the_first() -> None:
    passes = itertools.chain([0.1], [0.1] * 10, itertools.repeat(0.12))
    latency, _ = measure(passes, warmup_s=0, sample_s=2.19)
    assert latency.summary.drift == pytest.approx(0.2)


def test_a_long_first_pass_is_no_warm_up_and_no_sample() -> None:
    latency, passes = measure(itertools.chain([5.0], itertools.repeat(0.01)), warmup_s=0.045, sample_s=1)
    assert passes == 1 + 5 + len(latency.samples)
    assert max(sample.ms for sample in latency.samples) == pytest.approx(10)


@pytest.mark.parametrize(("warmup_s", "warm"), [(0, 1), (0.0001, 3)])
def test_the_length_of_a_block_comes_from_warm_passes(warmup_s: float, warm: int) -> None:
    latency, passes = measure(itertools.chain([5.0], itertools.repeat(1e-3)), cost=1e-5, warmup_s=warmup_s, sample_s=1)
    assert {sample.passes for sample in latency.samples} == {10}
    assert passes == 1 + warm + 10 * len(latency.samples)


def test_a_measurement_takes_its_least_time_although_the_interval_is_narrow() -> None:
    latency, _ = measure(itertools.repeat(0.01), warmup_s=0, sample_s=10, min_time_s=1)
    assert (latency.stop, len(latency.samples)) == ("interval", 102)  # the first planned count after 1 s
    assert measure(itertools.repeat(0.01), warmup_s=0, sample_s=0.1, min_time_s=1)[0].samples[-1].at_s >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "phi", "least"), [(0.02, 0.0, 0.90), (0.05, 0.0, 0.90), (0.05, 0.6, 0.88)])
def test_the_stated_interval_covers_the_true_median(noise: float, phi: float, least: float) -> None:
    """200 whole measurements each: how often [low, high] holds the median that the stream was made with."""
    covered = 0
    for seed in range(200):
        summary = measure(stream(0.01, noise, seed, phi), warmup_s=0, sample_s=4)[0].summary
        covered += summary.low <= 10.0 <= summary.high
    assert least <= covered / 200 <= 1.0


@pytest.mark.parametrize(("execution", "ms"), [("eager", 12e3), ("compile", 10)])
def test_a_first_pass_of_twelve_seconds_is_the_sample_of_training_unless_it_compiled(
    execution: str, ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Reply] = []
    case = Case("sa", "ctxbench.modules.sa:SelfAttention", {}, (1, 8, 4, 4), execution=execution)
    measurement = CaseMeasurement(case, Measure(sample_s=1, warmup_s=0, long_pass_s=6), messages.append)
    clock = FakeClock(itertools.repeat(0.01))
    monkeypatch.setattr(measurement, "clock", lambda: clock)
    monkeypatch.setattr(latency_metric, "time_control", lambda measurement: None)
    checked: list[object] = []
    monkeypatch.setattr(measurement, "check_computed", lambda *about: checked.append(about))
    latency_metric.time(measurement, "train", TimedPass(lambda: None, first_s=12.0))
    (values,) = [message.values for message in messages if isinstance(message, Values)]
    assert values["latency_train_ms"] == pytest.approx(ms)
    assert len(checked) == (execution == "compile")  # a pass of the whole budget was computed


CASE = Case("sa", "ctxbench.modules.sa:SelfAttention", {}, (1, 8, 4, 4))


def record(folder: Path, messages: Sequence[Reply], ended: Exit) -> Any:
    run = RunFolder.create(folder / "run", {})
    executor = FakeExecutor(lambda task: messages, ended)
    plan = Plan(Measure(timeout_s=5, processes=1), ["latency"])
    execute([CASE], plan, executor, executor.launch, run, Quiet())
    return run.frame().iloc[0]


@pytest.mark.parametrize(
    ("ended", "status", "message"),
    [
        (Exit(0, 0, False, ""), "error", "latency_train_ms, latency_infer_ms: missing, and no reason was given"),
        (
            Exit(0, 0, False, "", early=True),
            "crashed",
            "the process ended in latency_infer with exit code 0; it printed",
        ),
        (Exit(0, 40, False, ""), "crashed", "killed in latency_infer by signal 40; it printed nothing"),
        (Exit(0, signal.SIGKILL, True, ""), "timeout", "still in latency_infer after 5 s"),
        (Exit(0, signal.SIGSEGV, False, "a\nb\n"), "crashed", "killed in latency_infer by SIGSEGV; it last printed: b"),
        (Exit(7, 0, False, ""), "crashed", "the process ended in latency_infer with exit code 7; it printed nothing"),
    ],
)
def test_how_a_child_ended_becomes_the_status(tmp_path: Path, ended: Exit, status: str, message: str) -> None:
    row = record(tmp_path, [Doing("latency_infer")], ended)
    assert row["status"] == status
    assert row["message"].startswith(message)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Values({"latency_infre_ms": 1.0}), "a value for 'latency_infre_ms', which is no column of a metric"),
        (Values({"status": "ok"}), "a value for 'status', which is no column of a metric"),
        (Values({"case": "another"}), "a value for 'case', which is no column of a metric"),
        (Values({"params": 1.5}), "1.5 for params, which is no whole number"),
        (Values({"params": True}), "True for params, which is no whole number"),
        (Values({"latency_infer_ms": math.inf}), "inf for latency_infer_ms, which is no finite number"),
        (Values({"latency_infer_ms": "fast"}), "'fast' for latency_infer_ms, which is no finite number"),
        (Values({"title": 7}), "7 for title, which is no text"),
        (Samples("energy", []), "samples of an unknown stream 'energy'"),
        (Samples("infer", [Block(0.1, 1, math.nan)]), "samples that are no times"),
        (Samples("infer", [Block(0.1, 1, -1.0)]), "samples that are no times"),
        (Failure("fine", "all is well"), "a failure with the unknown status 'fine'"),
        (Failure("ok", "all is well"), "a failure with the unknown status 'ok'"),
    ],
)
def test_what_a_metric_never_sends_is_that_rows_crash(tmp_path: Path, message: Reply, sentence: str) -> None:
    messages = [Doing("latency_infer"), message, Values({"latency_infer_ms": 1.0})]
    row = record(tmp_path, messages, Exit(0, 0, False, ""))
    assert (row["status"], row["message"]) == ("crashed", f"the process sent in latency_infer {sentence}")
    assert pd.isna(row["latency_infer_ms"])


NO_CLOCK = Note("remark", {"text": "no clock"})


def test_a_number_that_is_missing_has_its_reason_or_the_row_is_no_ok(tmp_path: Path) -> None:
    promised = [column for column, _ in metrics()["latency"].promised(static=False)]
    assert sorted(promised) == [f"latency_{mode}_ms" for mode in MODES]
    row = record(
        tmp_path, [MissingColumns(promised[:1], NO_CLOCK), MissingColumns(promised[1:])], Exit(0, 0, False, "")
    )
    assert (row["status"], row["notes"]) == ("ok", [NO_CLOCK])


def test_what_a_child_did_besides_its_task_is_a_note(tmp_path: Path) -> None:
    row = record(tmp_path, [], Exit(0, 0, False, "", notes=(NO_CLOCK,)))
    assert row["notes"] == [NO_CLOCK]


def test_a_child_that_the_kernel_kills_for_memory_is_oom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = itertools.count(4)
    monkeypatch.setattr(scheduler, "_kernel_kills", lambda: next(kills))
    row = record(tmp_path, [], Exit(0, signal.SIGKILL, False, ""))
    assert (row["status"], row["message"]) == ("oom", "killed in start by the kernel, which was out of memory")


def test_values_reported_before_a_failure_stay(tmp_path: Path) -> None:
    note = Note("remark", {"text": "first; with a semicolon"})
    messages: list[Reply] = [
        Values({"params": 5}, [note, note]),
        Failure("oom", "out of memory: all", "Traceback: long"),
    ]
    row = record(tmp_path, messages, Exit(0, 0, False, ""))
    assert (row["params"], row["status"], row["message"]) == (5, "oom", "out of memory: all")
    assert row["notes"] == [note]
    assert "Traceback: long" in (tmp_path / "run" / "log.txt").read_text()
