"""Latency: milliseconds per pass, sampled in blocks in each of several fresh processes; the median of their medians."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import TYPE_CHECKING, Any

from ctxbench.base.mode import MODES, NOUNS, Mode
from ctxbench.base.notes import Note
from ctxbench.devices.clock import COST_RATIO, Clock, Step, block_cost
from ctxbench.metrics.launch import LAUNCH_SHARE, host_ms
from ctxbench.model.control import STREAM, control_columns
from ctxbench.model.messages import Doing, Progress, Sample, Samples
from ctxbench.model.metric import (
    MS,
    POSITIVE,
    Column,
    ColumnValues,
    Measurement,
    Metric,
    Quantity,
    RecordRow,
    TimedPass,
    by_mode,
)
from ctxbench.plugin import loaded

if TYPE_CHECKING:
    from ctxbench.base.statistics import Summary
    from ctxbench.model.case import Measure

# A person sees the count of samples this often.
PROGRESS_S = 0.5
# So many passes at least come between the first pass and the samples; one where `warmup_s` is 0.
WARM_PASSES = 3
# The columns of a mode.
DETAILS: dict[str, type[int] | type[float] | type[str]] = {
    "ms": float,
    "low_ms": float,
    "high_ms": float,
    "confidence": float,
    "samples": int,
    "stop": str,
    "drift": float,
    "autocorrelation": float,
    "outliers": int,
}
# The least that a detail can be, where that is not 0.
LEAST = {"ms": POSITIVE, "low_ms": POSITIVE, "high_ms": POSITIVE, "drift": -math.inf, "autocorrelation": -math.inf}
# Of several processes.
BETWEEN = ("spread_between", "spread_within")


@dataclass(frozen=True)
class Latency:
    """All samples in time order, their summary (milliseconds), what ended the measurement.

    `stop` is `interval` (the median's interval reached the target), `budget` (time ran out first) or `protocol` (a
    fixed count of repeats was done).
    """

    samples: list[Sample]
    summary: "Summary"
    stop: str

    def columns(self, mode: str) -> dict[str, Any]:
        """The columns of a record that this fills, for the mode `infer` or `train`."""
        summary = self.summary
        values = {
            "ms": summary.median,
            "low_ms": _known(summary.low),
            "high_ms": _known(summary.high),
            "confidence": summary.confidence,
            "samples": summary.samples,
            "stop": self.stop,
            "drift": _known(summary.drift),
            "autocorrelation": _known(summary.autocorrelation),
            "outliers": summary.outliers,
            "spread_within": summary.spread,
        }
        return {f"latency_{mode}_{name}": value for name, value in values.items()}


def measure_latency(
    step: Step,
    clock: Clock,
    measure: "Measure",
    first_s: float = 0.0,
    warm: bool = False,
    progress: Callable[[int, float], None] = lambda count, ms: None,
) -> Latency:
    """Time `step` (one pass) on `clock`, after its first pass, which took `first_s` seconds.

    Warm-up passes, which are no samples, come first (`warm_up`), unless the first pass took the whole budget. Where
    that is `long_pass_s` or more in a `warm` process, the first pass is the only sample: at Table 3's shape it differs
    from the second by less than two second passes do. `interval` goes on for `min_time_s` at least.
    `progress` is called between blocks with the count of samples and the last one's ms.
    """
    from ctxbench.base.statistics import StoppingRule, summarise  # imports numpy, which names and columns do not need

    slow = measure.protocol == "interval" and first_s >= measure.sample_s
    if slow and warm and first_s >= (measure.long_pass_s or math.inf) and measure.min_samples == 1:
        return Latency([Sample(first_s, 1, first_s * 1e3)], summarise([first_s * 1e3]), "budget")
    pass_s = first_s if slow else warm_up(step, clock, measure.warmup_s)
    if measure.protocol == "paper":
        passes, rule = measure.passes, None
    else:
        passes = max(1, math.ceil(COST_RATIO * block_cost(clock) / pass_s))
        rule = StoppingRule(target=measure.target, budget_s=measure.sample_s)
    samples: list[Sample] = []
    times: list[float] = []
    start = clock.now()
    stop: str | None = None
    while stop is None:
        ms = clock.time_block(step, passes) * 1e3 / passes
        elapsed = clock.now() - start
        samples.append(Sample(elapsed, passes, ms))
        times.append(ms)
        if rule is None:
            stop = "protocol" if len(samples) >= measure.repeats else None
        else:
            reason = rule.decide(times, elapsed)
            early = elapsed < measure.min_time_s or (reason == "budget" and len(samples) < measure.min_samples)
            stop = None if early else reason
        progress(len(samples), ms)
    return Latency(samples, summarise(times), stop)


def warm_up(step: Step, clock: Clock, seconds: float) -> float:
    """Run passes for `seconds`, three at least (one where `seconds` is 0); seconds of the fastest.

    The first pass is no part of it: it allocates, compiles and chooses kernels.
    """
    end = clock.now() + seconds
    times = [clock.time_block(step, 1) for _ in range(WARM_PASSES if seconds else 1)]
    while clock.now() < end:
        times.append(clock.time_block(step, 1))
    return min(times)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def time(measurement: Measurement, mode: Mode, one_pass: TimedPass) -> None:
    """Time the control workload, then the passes of a mode; report both."""
    clock = measurement.clock()
    last = clock.now()

    def progress(count: int, ms: float) -> None:
        nonlocal last
        if clock.now() - last > PROGRESS_S:
            last = clock.now()
            measurement.emit(Progress(f"latency_{mode}", count, ms))

    time_control(measurement)
    measurement.emit(Doing(f"latency_{mode}"))
    # The first pass of a compiled module compiles, that of a runtime takes its memory: it is like no other.
    first_s = 0.0 if measurement.execution.has_limit else one_pass.first_s
    warm = mode != MODES[0]
    latency = measure_latency(one_pass.step, clock, measurement.settings, first_s, warm, progress)
    if latency.summary.median < measurement.settings.sample_s * 1e3:  # a pass of the whole budget was computed
        measurement.check_computed(one_pass.step, mode, latency.summary.median)
    measurement.emit(Samples(mode, latency.samples))
    measurement.report(latency.columns(mode))
    if measurement.device.queues:
        host = host_ms(one_pass.step, measurement.device.synchronize)
        bound = host >= LAUNCH_SHARE * latency.summary.median
        measurement.report({f"latency_{mode}_host_ms": host}, *[Note("launch_bound", {"mode": mode})] * bound)


def combine(processes: Sequence[RecordRow]) -> dict[str, Any]:
    """The columns of a record from those of its processes: the median of their medians, its interval over processes."""
    values: dict[str, Any] = {}
    for mode in MODES:
        rows = [row for row in processes if row.get(f"latency_{mode}_ms") is not None]
        if rows:
            values |= {
                f"latency_{mode}_{name}": value for name, value in _of_processes(rows, f"latency_{mode}").items()
            }
    controls = [row["control_ms"] for row in processes if row.get("control_ms") is not None]
    if controls:
        low, high, _ = _interval(controls)
        values |= {"control_ms": median(controls), "control_low_ms": low, "control_high_ms": high}
    return values


def _of_processes(rows: Sequence[RecordRow], key: str) -> dict[str, Any]:
    def known(name: str) -> list[Any]:
        return [row[f"{key}_{name}"] for row in rows if row.get(f"{key}_{name}") is not None]

    def middle(name: str) -> float | None:
        return median(known(name)) if known(name) else None

    medians = known("ms")
    low, high, confidence = _interval(medians)
    logs = [math.log(ms) for ms in medians]
    return {
        "ms": median(medians),
        "low_ms": low,
        "high_ms": high,
        "confidence": confidence,
        "samples": sum(known("samples")),
        "stop": "budget" if "budget" in known("stop") else next(iter(known("stop")), None),
        "drift": middle("drift"),
        "autocorrelation": middle("autocorrelation"),
        "outliers": sum(known("outliers")),
        "spread_between": stdev(logs) if len(logs) > 1 else None,
        "spread_within": middle("spread_within"),
        **({"host_ms": middle("host_ms")} if known("host_ms") else {}),
    }


def _interval(medians: Sequence[float]) -> tuple[float | None, float | None, float]:
    from ctxbench.base.statistics import process_interval

    low, high, confidence = process_interval(medians)
    return _known(low), _known(high), confidence


def _counted(numbers: Sequence[str]) -> str:
    """`1 fresh process`, `3 to 5 fresh processes`."""
    counts = sorted({int(float(number)) for number in numbers})
    text = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else "".join(map(str, counts))
    return f"{text} fresh process{'es' * (counts[-1:] != [1])}"


def convention(values: ColumnValues) -> str:
    """Definition of a latency, with its number of processes, and of a predicted one."""
    measured = (
        f"Time: ms per pass, {_counted(values('processes'))}, median of the process medians [95 % "
        "interval over processes]; infer: eval, inference_mode; train: forward and y.sum().backward()"
    )
    predicted = loaded("conventions") if values("latency_origin") else []
    return ". ".join([measured] * bool(values("processes") or not predicted) + predicted)


def time_control(measurement: Measurement) -> None:
    """Time a block of the control workload and report what all blocks so far say."""
    samples = measurement.control.block()
    measurement.emit(Samples(STREAM, samples))
    measurement.report(control_columns(samples))


METRIC = Metric(
    name="latency",
    order=40,
    about="milliseconds per pass",
    columns=[
        Column("latency_origin", str),
        *(
            Column(f"latency_{mode}_{name}", kind, least=LEAST.get(name, 0.0))
            for mode in MODES
            for name, kind in DETAILS.items()
        ),
        *(Column(f"latency_{mode}_{name}", float) for mode in MODES for name in BETWEEN),
        *by_mode("latency_{mode}_host_ms", float),
        *(Column(name, float, least=POSITIVE) for name in ("control_ms", "control_low_ms", "control_high_ms")),
    ],
    quantities=[
        Quantity(
            key=f"latency_{mode}",
            column=f"latency_{mode}_ms",
            title=f"Time, {mode}",
            unit=MS,
            origin="measured",
            part="time",
            noun=f"{NOUNS[mode]} latency",
            has_interval=True,
            origin_column="latency_origin",
            on_front=mode == "infer",
        )
        for mode in reversed(MODES)
    ],
    convention=convention,
    time=time,
    finish=time_control,
    combine=combine,
)
