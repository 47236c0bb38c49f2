"""Latency: milliseconds a pass, sampled in blocks until the median is known well enough or the budget is spent."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ctxbench.engine.clock import COST_RATIO, Clock, Step, block_cost
from ctxbench.results import Sample
from ctxbench.statistics import StoppingRule, Summary, summarise
from ctxbench.suite import Measure


@dataclass(frozen=True)
class Latency:
    """All samples in time order, their summary (milliseconds), what ended the measurement.

    `stop` is `interval` (the median's interval reached the target), `budget` (time ran out first) or `protocol` (a
    fixed count of repeats was done).
    """

    samples: list[Sample]
    summary: Summary
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
    measure: Measure,
    progress: Callable[[int, float], None] = lambda count, ms: None,
) -> Latency:
    """Time `step` (one pass) on `clock`, after a first pass that took `first_pass_s`.

    Passes that do not count come first, until `warmup_s` seconds are used, the first pass included. `progress` is
    called between blocks with the count of samples and the last one's ms.
    """
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
