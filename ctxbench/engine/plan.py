"""A dry run: what a suite would measure, and about how long it would take."""

from dataclasses import dataclass

from ctxbench.engine.case import Plan, matmul_rate, measure_static
from ctxbench.engine.client import ForkServer
from ctxbench.engine.run import cases_on, machine
from ctxbench.metrics import static_metrics
from ctxbench.mode import MODES
from ctxbench.suite.case import Case, Measure
from ctxbench.suite.cases import Suite


@dataclass(frozen=True)
class Planned:
    """One case of a dry run: the larger predicted peak on CUDA (bytes), and about how many seconds it will take."""

    case: Case
    memory_bytes: int | None
    seconds: float | None
    note: str


# Share of the device's matmul rate that a context module is taken to reach in an estimate.
ASSUMED_EFFICIENCY = 0.3
# A backward pass does twice the forward's products.
TRAIN_PASSES = 3


def plan(suite: Suite, *, static: bool = False) -> list[Planned]:
    """What `run_suite` would measure, without measuring it: static metrics and one matrix product a device.

    The seconds are warm-up, budget or the least number of samples, whichever is longer, at the pass time that the MACs
    and the device's matmul rate suggest: an order of magnitude.
    """
    measure = suite.file.measure
    settings = Plan(measure, static_metrics())
    planned = []
    rates: dict[tuple[str, str, int | None], float | None] = {}
    with ForkServer() as server:
        for case in cases_on(suite, machine(server), static):
            record = measure_static(case, settings, server)
            macs, seconds = record.get("macs"), None
            if macs is not None and not static and "latency" in suite.file.metrics:
                yardstick = (case.device, case.dtype, case.threads)
                if yardstick not in rates:
                    rates[yardstick] = matmul_rate(case, measure, server)
                rate = rates[yardstick]
                seconds = None if rate is None else _estimate(measure, macs / (rate * ASSUMED_EFFICIENCY))
            peaks = [record.get(f"memory_{mode}_predicted_bytes") for mode in MODES]
            note = record.message or "; ".join(record.warnings)
            planned.append(Planned(case, max((b for b in peaks if b is not None), default=None), seconds, note))
    return planned


def _estimate(measure: Measure, pass_s: float) -> float:
    def mode(seconds: float) -> float:
        if measure.protocol == "paper":
            blocks = measure.repeats * measure.passes * seconds
        else:
            blocks = max(measure.sample_s, measure.min_samples * seconds)
        return 2 * seconds + max(measure.warmup_s, seconds) + blocks

    return measure.processes * (mode(pass_s) + mode(TRAIN_PASSES * pass_s))
