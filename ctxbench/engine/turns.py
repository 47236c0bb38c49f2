"""Measures cases in turns, there and back, so that a drift of the machine falls on all of them alike."""

from collections.abc import Sequence
from dataclasses import replace

from ctxbench.engine.scheduler import Executor, Plan, Reporter, measure_case
from ctxbench.metrics.control_time import control_columns
from ctxbench.metrics.latency import Latency
from ctxbench.results import CONTROL, MODES, Record, RunFolder, Sample
from ctxbench.statistics import summarise
from ctxbench.suite import Case

Measured = tuple[Record, dict[str, list[Sample]]]


def execute_in_turns(
    cases: Sequence[Case], plan: Plan, executor: Executor, folder: RunFolder, reporter: Reporter
) -> list[Record]:
    """Measure the cases in reverse order (C B A), then their latency again in order (A B C).

    Each turn has its own fresh process and half of the time budget; a record pools the samples of both, so that its
    interval also holds the difference between two processes. A record is on disk after its second turn.
    """
    measure = plan.measure.model_copy(update={"budget_s": plan.measure.budget_s / 2})
    there = replace(plan, measure=measure)
    back = replace(there, metrics=["latency"])
    first: list[Measured] = []
    for index, case in enumerate(reversed(cases)):
        reporter.case(index, 2 * len(cases), case)
        first.append(measure_case(case, there, executor, folder, reporter))
    records = []
    for index, (case, measured) in enumerate(zip(cases, reversed(first), strict=True)):
        reporter.case(len(cases) + index, 2 * len(cases), case)
        if measured[0].status == "ok" and "latency" in plan.metrics:
            measured = pool(measured, measure_case(case, back, executor, folder, reporter))
        folder.append(*measured)
        reporter.done(measured[0])
        records.append(measured[0])
    return records


def pool(first: Measured, second: Measured) -> Measured:
    """The first turn's record with the times over the samples of both; the second's status if that failed.

    The second turn's samples follow the first's: their times go on from its last.
    """
    (record, samples), (again, more) = first, second
    if again.status != "ok":
        return replace(record, status=again.status, message=f"in the second turn: {again.message}"), samples
    record = replace(record, elapsed_s=round((record.elapsed_s or 0) + (again.elapsed_s or 0), 3))
    pooled = {
        name: _joined(samples[name], more[name]) for name in (*MODES, CONTROL) if name in samples and name in more
    }
    for name, stream in pooled.items():
        if name == CONTROL:
            columns = control_columns(stream)
        else:
            stops = {getattr(turn, f"latency_{name}_stop") for turn in (record, again)}
            stop = "budget" if "budget" in stops else stops.pop()
            columns = Latency(stream, summarise([sample.ms for sample in stream]), stop).columns(name)
        record = replace(record, **columns)
    return record, pooled


def _joined(first: list[Sample], second: list[Sample]) -> list[Sample]:
    end = first[-1].at_s
    return first + [replace(sample, at_s=end + sample.at_s) for sample in second]
