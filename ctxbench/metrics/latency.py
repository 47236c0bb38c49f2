"""Latency: milliseconds a pass, sampled in blocks until the median is known well enough or the budget is spent."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ctxbench.engine.clock import COST_RATIO, Clock, Step, block_cost
from ctxbench.results import Sample
from ctxbench.statistics import StoppingRule, Summary, summarise
from ctxbench.suite import Measure


@dataclass(frozen=True)
class Latency:
    """All samples in time order, their summary (milliseconds), what ended the measurement, the first pass's seconds.

    `stop` is `interval` (the median's interval reached the target), `budget` (time ran out first) or `protocol` (a
    fixed count of repeats was done).
    """

    samples: list[Sample]
    summary: Summary
    stop: str
    first_pass_s: float


def measure_latency(
    step: Step, clock: Clock, measure: Measure, progress: Callable[[int, float], None] = lambda count, ms: None
) -> Latency:
    """Time `step` (one pass) on `clock`.

    One pass is run first and timed apart (it allocates, compiles, autotunes), then passes for `warmup_s` seconds, then
    the blocks that count. `progress` is called between blocks with the count of samples and the last one's ms.
    """
    first_pass_s = clock.time_block(step, 1)
    pass_s = _warm_up(step, clock, measure.warmup_s)
    if measure.protocol == "paper":
        passes, rule = measure.passes, None
    else:
        passes = max(1, math.ceil(COST_RATIO * block_cost(clock) / max(pass_s, 1e-9)))
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
    return Latency(samples, summarise(times), stop, first_pass_s)


def _warm_up(step: Step, clock: Clock, seconds: float) -> float:
    """Run passes for `seconds`, at least one; seconds of the fastest."""
    start = clock.now()
    fastest = clock.time_block(step, 1)
    while clock.now() - start < seconds:
        fastest = min(fastest, clock.time_block(step, 1))
    return fastest
