"""Latency: milliseconds a pass, sampled in blocks until the median is known well enough or the budget is spent."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxbench.devices.clock import COST_RATIO, Clock, Step, block_cost
from ctxbench.messages import Doing, Progress, Sample, Samples
from ctxbench.metrics.base import MS, Column, Measurement, Metric, Pass, Quantity, Unit
from ctxbench.metrics.control import STREAM, control_columns
from ctxbench.mode import MODES, Mode

if TYPE_CHECKING:
    from ctxbench.statistics import Summary
    from ctxbench.suite import Measure

# A person sees the count of samples this often.
PROGRESS_S = 0.5
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
        }
        return {f"latency_{mode}_{name}": value for name, value in values.items()}


def measure_latency(
    step: Step,
    first_pass_s: float,
    clock: Clock,
    measure: "Measure",
    progress: Callable[[int, float], None] = lambda count, ms: None,
) -> Latency:
    """Time `step` (one pass) on `clock`, after a first pass that took `first_pass_s`.

    Passes that do not count come first, until `warmup_s` seconds are used, the first pass included. `progress` is
    called between blocks with the count of samples and the last one's ms.
    """
    from ctxbench.statistics import StoppingRule, summarise  # imports numpy, which names and columns do not need

    pass_s = warm_up(step, first_pass_s, clock, measure.warmup_s)
    if measure.protocol == "paper":
        passes, rule = measure.passes, None
    else:
        passes = max(1, math.ceil(COST_RATIO * block_cost(clock) / pass_s))
        rule = StoppingRule(target=measure.target, budget_s=measure.budget_s)
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
            stop = None if reason == "budget" and len(samples) < measure.min_samples else reason
        progress(len(samples), ms)
    return Latency(samples, summarise(times), stop)


def warm_up(step: Step, first_pass_s: float, clock: Clock, seconds: float) -> float:
    """Run passes for what the first one left of `seconds`; seconds of the fastest."""
    end = clock.now() + seconds - first_pass_s
    fastest = first_pass_s
    while clock.now() < end:
        fastest = min(fastest, clock.time_block(step, 1))
    return fastest


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def time(measurement: Measurement, mode: Mode, one_pass: Pass) -> None:
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
    latency = measure_latency(one_pass.step, one_pass.first_s, clock, measurement.settings, progress)
    measurement.emit(Samples(mode, latency.samples))
    measurement.report(latency.columns(mode))


def time_control(measurement: Measurement) -> None:
    """Time a block of the control workload and report what all blocks so far say."""
    samples = measurement.control.block()
    measurement.emit(Samples(STREAM, samples))
    measurement.report(control_columns(samples))


def _quantities() -> list[Quantity]:
    nouns = {"train": "training", "infer": "inference"}
    times = [
        Quantity(
            key=f"latency_{mode}",
            column=f"latency_{mode}_ms",
            title=f"Time, {mode}",
            unit=MS,
            origin="measured",
            part="time",
            noun=f"{nouns[mode]} latency",
            has_interval=True,
            on_front=mode == "infer",
        )
        for mode in reversed(MODES)
    ]
    correlations = [
        Quantity(
            key=f"autocorrelation_{mode}",
            column=f"latency_{mode}_autocorrelation",
            title=f"Autocorrelation, {mode}",
            unit=Unit(""),
            origin="measured",
            part="samples",
            noun=f"autocorrelation of the {nouns[mode]} samples",
            better=None,
            decimals=2,
        )
        for mode in reversed(MODES)
    ]
    return [*times, *correlations]


METRIC = Metric(
    name="latency",
    place=40,
    about="milliseconds a pass",
    columns=[
        *(Column(f"latency_{mode}_{name}", kind) for mode in MODES for name, kind in DETAILS.items()),
        *(Column(name, float, since=2) for name in ("control_ms", "control_low_ms", "control_high_ms")),
    ],
    quantities=_quantities(),
    convention=lambda values: (
        "Time: ms a pass, median [95 % interval of the median]; infer: eval, inference_mode; "
        "train: forward and y.sum().backward(); autocorrelation: of each sample with the next"
    ),
    time=time,
    finish=time_control,
)
