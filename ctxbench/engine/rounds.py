"""Measures cases in two rounds, there and back, so that a drift of the machine falls on all of them alike."""

from collections.abc import Sequence
from dataclasses import replace

from ctxbench.engine.scheduler import Executor, Outcome, Plan, Reporter, measure_case
from ctxbench.messages import Sample
from ctxbench.metrics.control import STREAM, control_columns
from ctxbench.metrics.latency import Latency
from ctxbench.mode import MODES
from ctxbench.results import Record, RunFolder
from ctxbench.statistics import summarise
from ctxbench.suite import Case


def execute_in_rounds(
    cases: Sequence[Case], plan: Plan, executor: Executor, folder: RunFolder, reporter: Reporter
) -> list[Record]:
    """Measure the cases in reverse order (C B A), then their latency again in order (A B C).

    Each round has its own fresh process and half of the time budget; a record pools the samples of both, so that its
    interval also holds the difference between two processes. A record is on disk after its second round.
    """
    measure = plan.measure.model_copy(update={"budget_s": plan.measure.budget_s / 2})
    there = replace(plan, measure=measure)
    back = replace(there, metrics=["latency"])
    first: list[Outcome] = []
    for index, case in enumerate(reversed(cases)):
        reporter.case(index, 2 * len(cases), case)
        first.append(measure_case(case, there, executor, reporter))
    records = []
    for index, (case, outcome) in enumerate(zip(cases, reversed(first), strict=True)):
        reporter.case(len(cases) + index, 2 * len(cases), case)
        if outcome.record.status == "ok" and "latency" in plan.metrics:
            pool(outcome, measure_case(case, back, executor, reporter))
        outcome.record.title, outcome.record.family = case.entry.title, case.entry.family
        outcome.write(folder)
        reporter.done(outcome.record)
        records.append(outcome.record)
    return records


def pool(first: Outcome, second: Outcome) -> None:
    """Put the second round into the first: the times over the samples of both; the second's status if that failed.

    The second round's samples follow the first's: their times go on from its last.
    """
    record, again = first.record, second.record
    first.log = [*first.log, *second.log]
    if again.status != "ok":
        record.status, record.message = again.status, f"in the second round: {again.message}"
        return
    record.warn(*again.warnings)
    record.elapsed_s = round((record.elapsed_s or 0) + (again.elapsed_s or 0), 3)
    first.samples = {
        name: _joined(first.samples[name], second.samples[name])
        for name in (*MODES, STREAM)
        if name in first.samples and name in second.samples
    }
    for name, stream in first.samples.items():
        if name == STREAM:
            record.take(control_columns(stream))
        else:
            stops = {outcome.get(f"latency_{name}_stop") for outcome in (record, again)}
            stop = "budget" if "budget" in stops else stops.pop()
            record.take(Latency(list(stream), summarise([sample.ms for sample in stream]), stop).columns(name))


def _joined(first: Sequence[Sample], second: Sequence[Sample]) -> list[Sample]:
    end = first[-1].at_s
    return [*first, *(replace(sample, at_s=end + sample.at_s) for sample in second)]
