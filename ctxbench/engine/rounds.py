"""Measures the cases of a suite: first what needs one process, then their times in rounds of fresh processes."""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from statistics import median

from ctxbench.devices import META
from ctxbench.engine.case import Executor, Outcome, Plan, Reporter, matmul_rate, measure_case
from ctxbench.machine_load import CONTROL_LIMIT, disturbed, shares_gpu
from ctxbench.metrics import metrics
from ctxbench.results.record import Record
from ctxbench.results.run_folder import RunFolder
from ctxbench.statistics import FEWEST_PROCESSES
from ctxbench.suite.case import Case

# Starts a new interpreter, so that the layout of its address space is drawn anew.
Launch = Callable[[], AbstractContextManager[Executor]]
# Of the time of the planned rounds, for rounds that measure disturbed processes again.
EXTRA_SHARE = 0.25
# Device, dtype, threads, whether the case was reused, and the slot of a cluster.
Yardstick = tuple[str, str, int | None, bool, str]


def execute(
    cases: Sequence[Case], plan: Plan, executor: Executor, launch: Launch, folder: RunFolder, reporter: Reporter
) -> list[Record]:
    """Measure what the folder lacks of the cases; their records, in order.

    Process 0 of a case measures what needs one process, in `executor`. Its times are measured in rounds, each with a
    new interpreter and with the cases in another order, so that a drift of the machine falls on all of them alike. A
    case that fails takes part in no later round. Each process is on disk before the next begins.
    """
    reused = (folder.meta.get("reused") or {}).get("cases", ())
    run = Rounds(
        cases, plan, reporter, lambda number, outcome: outcome.write(folder, number), folder.finished(), reused
    )
    try:
        run.once(executor, {})
        for _ in run.rounds(launch):
            folder.write_records(run.records())
    finally:
        records = run.records()
        folder.write_records(records)
    return records


class Rounds:
    """The cases and their finished processes, by their numbers; `keep` is called with each as it finishes."""

    def __init__(
        self,
        cases: Sequence[Case],
        plan: Plan,
        reporter: Reporter,
        keep: Callable[[int, Outcome], None],
        finished: Mapping[str, Mapping[int, Record]],
        reused: Collection[str] = (),
    ) -> None:
        self.cases, self.plan, self.reporter, self.keep, self.reused = cases, plan, reporter, keep, reused
        self.processes = plan.measure.processes
        self.finished = {case.id: dict(finished.get(case.id, {})) for case in cases}
        self.is_timed = bool(plan.repeated().metrics)
        # What is being measured.
        self.current: Case | None = None

    def is_complete(self, case: Case) -> bool:
        """Whether no planned process of a case is lacking."""
        return 0 in self.finished[case.id] and not any(self._lacks(case, n + 1) for n in range(self.processes))

    def once(self, executor: Executor, rates: dict[Yardstick, float | None]) -> None:
        """Measure what needs one process, and the rate of a large matrix product for each yardstick not in `rates`."""
        for case in self.cases:
            if 0 in self.finished[case.id]:
                continue
            outcome = self._measure(case, 0, executor)
            if self._is_timed(case) and outcome.record.status == "ok":
                yardstick = self._yardstick(case, outcome.record)
                if yardstick not in rates:
                    rates[yardstick] = matmul_rate(case, self.plan.measure, executor)
                outcome.record.take({"matmul_macs_per_s": rates[yardstick]})
            self._keep(case, 0, outcome)
            if not self._lacks(case, 1):
                self.reporter.done(outcome.record)

    def rounds(self, launch: Launch) -> Iterator[None]:
        """Measure the times; yields after each round."""
        number = 0
        while number < self.processes or self._goes_on(number):
            number += 1
            cases = self._lacking(number)
            random.Random(f"{self.plan.measure.seed} {number}").shuffle(cases)
            if cases:
                with launch() as executor:
                    for case in cases:
                        self._keep(case, number, self._measure(case, number, executor))
                yield
        for case, record in zip(self.cases, self.records(), strict=True):
            if any(self.finished[case.id]):
                self.reporter.done(record)

    def records(self) -> list[Record]:
        """The records of the cases that a process has finished of."""
        at_rest = self._at_rest()
        return [combine(each, self.processes, at_rest[name]) for name, each in self.finished.items() if each]

    def _measure(self, case: Case, number: int, executor: Executor) -> Outcome:
        index = sum(map(len, self.finished.values()))
        total = max(index + 1, len(self.cases) * self.plan.processes)
        self.reporter.process(index, total, case, number)
        self.current = case
        plan = self.plan.repeated() if number else self.plan.once()
        return measure_case(case, plan, executor, self.reporter)

    def _keep(self, case: Case, number: int, outcome: Outcome) -> None:
        self.keep(number, outcome)
        self.finished[case.id][number] = outcome.record

    def _is_timed(self, case: Case) -> bool:
        return self.is_timed and case.device != META

    def _yardstick(self, case: Case, record: Record) -> Yardstick:
        """What the speed of fixed work depends on; a case that was reused was measured at another time."""
        return case.device, case.dtype, case.threads, case.id in self.reused, record.slot

    def _at_rest(self) -> dict[str, list[int]]:
        """The processes of each case that others did not disturb; their times have no part in that.

        The control workload's usual time is its median over all processes with the same yardstick.
        """
        times: dict[Yardstick, list[float]] = defaultdict(list)
        for case in self.cases:
            for record in self.finished[case.id].values():
                if (ms := record.get("control_ms")) is not None:
                    times[self._yardstick(case, record)].append(ms)
        limits = {yardstick: CONTROL_LIMIT * median(found or [math.inf]) for yardstick, found in times.items()}
        return {
            case.id: [
                number
                for number, record in self.finished[case.id].items()
                if number
                and not disturbed(record.others_share)
                and not shares_gpu(record.machine_state)
                and (record.get("control_ms") or 0.0) <= limits.get(self._yardstick(case, record), math.inf)
            ]
            for case in self.cases
        }

    def _lacking(self, number: int) -> list[Case]:
        """The cases that a round is to time: all in the planned ones, later those with too few processes at rest."""
        cases = [case for case in self.cases if self._lacks(case, number)]
        if number <= self.processes:
            return cases
        at_rest = self._at_rest()
        return [case for case in cases if len(at_rest[case.id]) < self.processes]

    def _lacks(self, case: Case, number: int) -> bool:
        """Whether a process of a case can be timed that is not there: none can of a case that failed."""
        finished = self.finished[case.id]
        if not self._is_timed(case) or case.id in self.reused or number in finished:
            return False
        return all(record.status == "ok" for record in finished.values())

    def _goes_on(self, number: int) -> bool:
        """Whether another round follows the planned ones, for processes that were disturbed.

        None does where nothing was at rest in the last three, after as many as were planned, or after EXTRA_SHARE of
        the time that the planned ones took.
        """
        if number >= 2 * self.processes or not self._lacking(number + 1):
            return False
        if not any(max(found, default=0) > number - FEWEST_PROCESSES for found in self._at_rest().values()):
            return False
        seconds = [(n, each[n].elapsed_s or 0.0) for each in self.finished.values() for n in each if n]
        planned = sum(s for n, s in seconds if n <= self.processes)
        return sum(s for n, s in seconds if n > self.processes) <= EXTRA_SHARE * planned


def combine(finished: Mapping[int, Record], planned: int, at_rest: Collection[int]) -> Record:
    """The record of a case from its processes; process 0 has what was measured once.

    Times come from the processes `at_rest`, or from all where fewer than three of the `planned` ones are.
    """
    first = finished[min(finished)]
    record = replace(first, values={}, warnings=[])
    timed = {number: finished[number] for number in sorted(finished) if number}
    good = {number: each for number, each in timed.items() if number in at_rest}
    used = good if len(good) >= min(FEWEST_PROCESSES, planned) else timed
    for each in (first, *used.values()):
        record.values = {**each.values, **record.values}
        record.warn(*each.warnings)
        record.machine_state = record.machine_state or each.machine_state
    for metric in metrics().values() if used else ():
        if metric.combine:
            for column in metric.columns:
                record.values.pop(column.name, None)
            record.take(metric.combine({number: each.values for number, each in used.items()}))
    record.elapsed_s = round(sum(each.elapsed_s or 0.0 for each in finished.values()), 3)
    if used:
        record.processes = len(used)
        record.others_share = max((each.others_share for each in used.values() if each.others_share), default=0.0)
    for number, each in timed.items():
        if each.status != "ok":
            earlier = f"in process {number} of {planned}: " if number > 1 else ""
            record.status, record.message = each.status, earlier + each.message
    return record
