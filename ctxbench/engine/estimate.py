"""Duration of a suite, estimated from the MACs of its cases and the device's matrix-product rate.

Over the committed runs the estimate of all processes of a run is 0.75 to 1.10 times what they took
(`tests/test_estimate.py`).
"""

from collections.abc import Sequence

from ctxbench.base.mode import MODES, Mode
from ctxbench.executions import execution
from ctxbench.model.case import Measure
from ctxbench.model.metrics import wanted
from ctxbench.model.record import Record

# Share of the matrix-product rate that context modules reach where a pass is long: the median of the suite `field`.
EFFICIENCY = 0.65
# A backward pass does twice the forward's products.
TRAIN_PASSES = 3
# Seconds of a pass that no MAC explains, of a process beside its passes, and of the start of an interpreter.
PASS_S, PROCESS_S, START_S = 0.002, 0.3, 2.0


def pass_s(record: Record, mode: Mode, rate: float) -> float:
    """Seconds of a pass of a case whose MACs are counted; `rate` in MAC/s."""
    macs = float(record.get("macs") or 0)
    if mode == "train":
        return 2 * PASS_S + float(record.get("macs_train") or TRAIN_PASSES * macs) / (rate * EFFICIENCY)
    return PASS_S + macs / (rate * EFFICIENCY)


def once_s(record: Record, rate: float) -> float:
    """Seconds of the process that measures what needs one: counts, and a pass of each mode for memory."""
    return PROCESS_S + sum(pass_s(record, mode, rate) for mode in MODES)


def whole_s(metrics: Sequence[str], measure: Measure) -> float:
    """Seconds that metrics take once for a case beside its passes, such as those of trainings."""
    return sum(metric.takes_s(measure) for metric in wanted(metrics))


def process_s(record: Record, measure: Measure, rate: float) -> float:
    """Seconds of a process that times the modes of a case."""
    way = execution(record.execution)
    return PROCESS_S + way.takes_s + sum(_mode_s(pass_s(record, mode, rate), measure) for mode in way.modes)


def _mode_s(one: float, measure: Measure) -> float:
    """The first pass, the warm-up and the samples of a mode whose pass takes `one` second."""
    if measure.protocol == "paper":
        return one + max(measure.warmup_s, one) + measure.repeats * measure.passes * one
    warm = 0.0 if one >= measure.sample_s else max(measure.warmup_s, (3 if measure.warmup_s else 1) * one)
    return one + warm + max(measure.sample_s, measure.min_samples * one)
