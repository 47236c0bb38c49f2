"""A dry run: what a suite would measure, and about how long it would take."""

from dataclasses import dataclass

from ctxbench.base.dtypes import DTYPES
from ctxbench.base.mode import MODES
from ctxbench.base.notes import joined
from ctxbench.engine.cache import CachedExecutor, machine_key
from ctxbench.engine.client import ForkServer
from ctxbench.engine.estimate import START_S, once_s, process_s, whole_s
from ctxbench.engine.one_process import Plan, matmul_rate
from ctxbench.engine.run import machine
from ctxbench.engine.together import measure_static
from ctxbench.model.case import Case, Measure
from ctxbench.model.grid import Suite
from ctxbench.model.metrics import static_metrics
from ctxbench.model.record import Record
from ctxbench.results.plan import check_installed, prepare

# Seconds of the matrix products that tell a device's rate: an estimate needs no more.
PRODUCT_S = 0.2


@dataclass(frozen=True)
class Planned:
    """One case of a dry run: the larger predicted peak on CUDA (bytes), and about how many seconds it will take.

    `least_s` are the seconds with one process.
    """

    case: Case
    memory_bytes: int | None
    seconds: float | None
    least_s: float | None
    note: str


def plan(suite: Suite, *, static: bool = False) -> list[Planned]:
    """Plan of what `run_suite` would measure, without measuring it: static metrics and one matrix product a device.

    Both are kept, the product until the machine starts anew, so that the next plan needs no process. The seconds are
    warm-up, budget or the least number of samples, whichever is longer, at the pass time that the MACs and the device's
    matmul rate suggest; and the trainings of a metric that trains.
    """
    check_installed(suite.file, static)
    _ = suite.points  # wrong names end here, before a process is started
    measure = suite.file.measure
    settings = Plan(measure, static_metrics())
    planned, records = [], dict[str, Record]()
    brief = measure.model_copy(update={"sample_s": min(measure.sample_s, PRODUCT_S)})
    rates: dict[tuple[str, str, int | None], float | None] = {}
    with ForkServer(soon=False) as server:
        executor = CachedExecutor(server, on=machine_key())
        cases = prepare(suite, machine(executor), static).cases
        measure_static(cases, settings, executor, records.__setitem__)
        for case in cases:
            record = records[case.id]
            seconds = least = None
            if record.get("macs") is not None and not static and "latency" in suite.file.metrics:
                dtype = DTYPES[case.dtype].autocast or case.dtype  # of its products
                yardstick = (case.device, dtype, case.threads)
                if yardstick not in rates:
                    rates[yardstick] = matmul_rate(case, brief, executor)
                if rate := rates[yardstick]:
                    once, each = once_s(record, rate), process_s(record, measure, rate)
                    seconds, least = once + measure.processes * each, once + each
            if not static and (trained := whole_s(suite.file.metrics, measure)):
                seconds, least = (trained + (each or 0.0) for each in (seconds, least))
            peaks = [record.get(f"memory_{mode}_predicted_bytes") for mode in MODES]
            note = record.message or joined(record.notes)
            planned.append(Planned(case, max((b for b in peaks if b is not None), default=None), seconds, least, note))
    return planned


def total_s(planned: list[Planned], measure: Measure) -> float:
    """About how many seconds all cases take together: the suite's budget, if there is one that suffices."""
    if measure.total_s is not None:
        return max(measure.total_s, START_S + sum(item.least_s or 0.0 for item in planned))
    return START_S * (1 + measure.processes) + sum(item.seconds or 0.0 for item in planned)
