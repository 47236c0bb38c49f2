"""Measures cases in turns, there and back, so that a drift of the machine falls on all of them alike."""

from collections.abc import Sequence
from dataclasses import replace

from ctxbench.engine.scheduler import Executor, Plan, Reporter, measure_case
from ctxbench.metrics.latency import Latency
from ctxbench.results import MODES, Record, RunFolder, Sample
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
    """The first turn's record with the latency over the samples of both; the second's status if that failed.

    The second turn's samples follow the first's: their times go on from its last.
    """
    (record, samples), (again, more) = first, second
    if again.status != "ok":
        return replace(record, status=again.status, message=f"in the second turn: {again.message}"), samples
    record = replace(record, elapsed_s=round((record.elapsed_s or 0) + (again.elapsed_s or 0), 3))
    pooled: dict[str, list[Sample]] = {}
    for mode in MODES:
        if mode not in samples or mode not in more:
            continue
        end = samples[mode][-1].at_s
        pooled[mode] = samples[mode] + [replace(sample, at_s=end + sample.at_s) for sample in more[mode]]
        stops = {getattr(turn, f"latency_{mode}_stop") for turn in (record, again)}
        stop = "budget" if "budget" in stops else stops.pop()
        summary = summarise([sample.ms for sample in pooled[mode]])
        for name, value in Latency(pooled[mode], summary, stop).columns(mode).items():
            setattr(record, name, value)
    return record, pooled
