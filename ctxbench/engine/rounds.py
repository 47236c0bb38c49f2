"""Measures the cases of a suite: first what needs one process, then their times in rounds of fresh processes."""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from operator import itemgetter
from statistics import median

from ctxbench.base import clocks as this_machine
from ctxbench.base.limits import FEWEST_PROCESSES
from ctxbench.base.load import CONTROL_LIMIT, disturbed, shares_gpu
from ctxbench.base.mode import MODES
from ctxbench.base.temporary import temporary_folder
from ctxbench.devices import device, has_clock
from ctxbench.engine.combined import combine
from ctxbench.engine.estimate import process_s
from ctxbench.engine.one_process import CaseOutcome, Executor, Plan, matmul_rate
from ctxbench.engine.progress import Quiet
from ctxbench.engine.together import counted_together, groups, measure_static, measure_together
from ctxbench.executions import execution
from ctxbench.model.case import Case
from ctxbench.model.metrics import static_metrics
from ctxbench.model.record import Record
from ctxbench.results.run_folder import RunFolder

# Starts a new interpreter, so that the layout of its address space is drawn anew.
Launch = Callable[[], AbstractContextManager[Executor]]
# Of the time of the planned rounds, for rounds that measure disturbed processes again.
EXTRA_SHARE = 0.25
# Of a case, where a budget for the whole suite gives it more than were planned.
MOST_PROCESSES = 15
# Device, dtype, threads, whether the case was reused, and what a subclass adds.
Yardstick = tuple[str | int | bool | None, ...]


def execute(
    cases: Sequence[Case], plan: Plan, executor: Executor, launch: Launch, folder: RunFolder, reporter: Quiet
) -> list[Record]:
    """Measure what the folder lacks of the cases; their records, in order.

    Process 0 of a case measures what needs one process, in `executor`. Its times are measured in rounds, each with a
    new interpreter and with the cases in another order, so that a drift of the machine falls on all of them alike. What
    process 0 has compiled or exported the others find. A case that fails takes part in no later round. Each process is
    on disk before the next begins.
    """
    reused = (folder.meta.get("reused") or {}).get("cases", ())
    keeps = any(execution(case.execution).has_limit for case in cases)
    with temporary_folder() if keeps else nullcontext() as kept:
        run = Rounds(
            cases,
            replace(plan, kept=kept),
            reporter,
            lambda number, outcome: outcome.write(folder, number),
            folder.finished(),
            reused,
        )
        try:
            run.count(executor)
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
        reporter: Quiet,
        keep: Callable[[int, CaseOutcome], None],
        finished: Mapping[str, Mapping[int, Record]],
        reused: Collection[str] = (),
    ) -> None:
        self.cases, self.plan, self.reporter, self.keep, self.reused = cases, plan, reporter, keep, reused
        self.processes = plan.measure.processes
        self.finished = {case.id: dict(finished.get(case.id, {})) for case in cases}
        self.is_timed = bool(plan.repeated().metrics)
        # Seconds until interpreters had started.
        self.starting_s = 0.0
        # Seconds that the processes of the rounds took, and by their estimates would have taken.
        self.taken_s = self.expected_s = 0.0
        # What is still to be in a round beyond the planned ones.
        self.again: list[Case] = []

    def count(self, executor: Executor) -> None:
        """Tell a person who watches what is counted of each case, before anything is measured.

        Not on a device that queues, where process 0 tells it as soon: its passes take milliseconds.
        """
        static = replace(self.plan, metrics=[name for name in self.plan.metrics if name in static_metrics()])
        if self.reporter.is_watched and static.metrics:
            new = (case for case in self.cases if has_clock(case.device) and 0 not in self.finished[case.id])
            cases = [case for case in new if not device(case.device).queues]
            measure_static(
                cases, static, executor, lambda name, record: self.reporter.known(replace(record, case=name), None)
            )

    def once(self, executor: Executor, rates: dict[Yardstick, float | None]) -> None:
        """Measure what needs one process, and the rate of a large matrix product for each yardstick not in `rates`."""

        def keep(case: Case, outcome: CaseOutcome) -> None:
            if self._is_timed(case) and outcome.record.status == "ok":
                yardstick = self.yardstick(case, outcome.record)
                if yardstick not in rates:
                    rates[yardstick] = matmul_rate(case, self.plan.measure, executor)
                outcome.record.take({"matmul_macs_per_s": rates[yardstick]})
            self._keep(case, outcome, 0)
            if not self.lacks(case, 1):
                self.reporter.done(outcome.record)

        begin = partial(self._begin, number=0)
        for group in counted_together(case for case in self.cases if 0 not in self.finished[case.id]):
            measure_together(group, self.plan.once(), executor, self.reporter, begin, keep)

    def rounds(self, launch: Launch) -> Iterator[None]:
        """Measure the times; yields after each round."""
        for number in itertools.count(1):
            cases = self._lacking(number)
            if not cases and number > self.processes:
                break
            random.Random(f"{self.plan.measure.seed} {number}").shuffle(cases)
            self.again = [*cases] if number > self.processes else []
            if cases:
                begin = this_machine.here.wall_s()
                with launch() as executor:
                    self.starting_s += this_machine.here.wall_s() - begin
                    for group in groups(cases, self.plan.measure.alone):
                        self._time(group, number, executor)
                yield
        for case, record in zip(self.cases, self.records(), strict=True):
            if any(self.finished[case.id]):
                self.reporter.done(record)

    def records(self) -> list[Record]:
        """The records of the cases that a process has finished of."""
        undisturbed = self._undisturbed()
        return [combine(each, self.processes, undisturbed[name]) for name, each in self.finished.items() if each]

    def _time(self, cases: Sequence[Case], number: int, executor: Executor) -> None:
        """Measure the times of cases that share a process of a round."""
        begin, keep = partial(self._begin, number=number), partial(self._keep, number=number)
        measure_together(cases, self.plan.repeated(), executor, self.reporter, begin, keep)

    def _begin(self, case: Case, number: int) -> None:
        index = sum(map(len, self.finished.values()))
        total = max(index + 1, len(self.cases) * self.plan.processes)
        self.reporter.process(index, total, case, number)
        self.again = [each for each in self.again if each is not case]

    def _keep(self, case: Case, outcome: CaseOutcome, number: int) -> None:
        self.keep(number, outcome)
        self.finished[case.id][number] = outcome.record
        if number and outcome.record.status == "ok" and (expected := self._estimate_s(case)):
            self.expected_s += expected
            self.taken_s += outcome.record.elapsed_s or 0.0
        if self.reporter.is_watched:
            record = combine(self.finished[case.id], self.processes, self._undisturbed()[case.id])
            self.reporter.known(record, self.left_s())

    def left_s(self) -> float | None:
        """About how many seconds the run goes on; None as long as no rate of the device is known."""
        if not all(0 in each for each in self.finished.values()):
            return None
        left = sum(map(self._cost_s, self.again))
        for case in self.cases:
            lacking = sum(self.lacks(case, number + 1) for number in range(self.processes))
            if lacking:
                left += lacking * self._cost_s(case)
        measure = self.plan.measure
        return left if measure.total_s is None else max(measure.total_s - self._spent_s(), 0.0)

    def _is_timed(self, case: Case) -> bool:
        return self.is_timed and has_clock(case.device)

    def yardstick(self, case: Case, record: Record) -> Yardstick:
        """Conditions that the speed of fixed work depends on; a case that was reused was measured at another time."""
        return case.device, case.dtype, case.threads, case.id in self.reused

    def _undisturbed(self) -> dict[str, list[int]]:
        """The processes of each case that others did not disturb; their times have no part in that.

        The control workload's usual time is its median over all processes with the same yardstick.
        """
        times: dict[Yardstick, list[float]] = defaultdict(list)
        for case in self.cases:
            for record in self.finished[case.id].values():
                if (ms := record.get("control_ms")) is not None:
                    times[self.yardstick(case, record)].append(ms)
        limits = {yardstick: CONTROL_LIMIT * median(found or [math.inf]) for yardstick, found in times.items()}
        return {
            case.id: [
                number
                for number, record in self.finished[case.id].items()
                if number
                and not disturbed(record.others_share)
                and not shares_gpu(record.machine_state)
                and (record.get("control_ms") or 0.0) <= limits.get(self.yardstick(case, record), math.inf)
            ]
            for case in self.cases
        }

    def _lacking(self, number: int) -> list[Case]:
        """The cases that a round is to time: all in the planned ones, later those with too few undisturbed processes.

        With a budget for the suite also those with a wide interval, and of all only what the budget lasts for.
        """
        cases = [case for case in self.cases if self.lacks(case, number)]
        if number > self.processes:
            if not self._goes_on(number - 1):
                return []
            kept = self._undisturbed()
            cases = [case for case in cases if len(kept[case.id]) < self.processes or self._is_wide(case, kept)]
        if number == 1:
            self._tell_least(cases)
            return cases
        return self._affordable(cases, max(self.processes + 1 - number, 1))

    def _tell_least(self, cases: Sequence[Case]) -> None:
        """Say so where the suite's budget does not last for one process of each row; each gets one all the same."""
        budget = self.plan.measure.total_s
        if budget is not None and (least := self._spent_s() + sum(map(self._cost_s, cases))) > budget:
            self.reporter.note(
                f"a budget of {budget:g} s is too small for one process of each row: that takes about {least:.0f} s, "
                f"and intervals take {FEWEST_PROCESSES} processes"
            )

    def _is_wide(self, case: Case, undisturbed: Mapping[str, Collection[int]]) -> bool:
        """Return whether a budget is there to narrow a case's intervals, and one is wider than the suite's `spread`."""
        measure = self.plan.measure
        if measure.total_s is None:
            return False
        record = combine(self.finished[case.id], self.processes, undisturbed[case.id])
        for mode in MODES:
            ms, low, high = (record.get(f"latency_{mode}_{name}") for name in ("ms", "low_ms", "high_ms"))
            if ms is not None and (low is None or high - low > 2 * measure.spread * ms):
                return True
        return False

    def _affordable(self, cases: list[Case], rounds: int) -> list[Case]:
        """The cheapest of the cases, as many as `rounds` rounds of them fit into what is left of the suite's budget."""
        if self.plan.measure.total_s is None:
            return cases
        left = self.plan.measure.total_s - self._spent_s()
        chosen = []
        for cost, case in sorted(((self._cost_s(case), case) for case in cases), key=itemgetter(0)):
            left -= rounds * cost
            if left < 0:
                break
            chosen.append(case)
        return chosen

    def _spent_s(self) -> float:
        """The seconds of all processes so far, and of the starts of interpreters."""
        return self.starting_s + sum(
            record.elapsed_s or 0.0
            for name, each in self.finished.items()
            if name not in self.reused
            for record in each.values()
        )

    def _cost_s(self, case: Case) -> float:
        """The seconds of the case's longest process of a round so far.

        Before the first, an estimate from its MACs, times what the other processes of this run took over theirs.
        """
        own = [record.elapsed_s or 0.0 for number, record in self.finished[case.id].items() if number]
        return max(own) if own else self._estimate_s(case) * (self.taken_s / self.expected_s if self.expected_s else 1)

    def _estimate_s(self, case: Case) -> float:
        counted = self.finished[case.id][0]
        rate = counted.get("matmul_macs_per_s")
        return process_s(counted, self.plan.measure, rate) if rate else 0.0

    def lacks(self, case: Case, number: int) -> bool:
        """Return whether a process of a case can be timed that is not there: none can of a case that failed."""
        finished = self.finished[case.id]
        if not self._is_timed(case) or case.id in self.reused or number in finished:
            return False
        return all(record.status == "ok" for record in finished.values())

    def _goes_on(self, number: int) -> bool:
        """Return whether another round may follow round `number`, which is a planned one or a later one.

        With a budget for the suite, it alone decides. Else none does where the last three have no undisturbed process,
        after as many as were planned, or after EXTRA_SHARE of the time that the planned ones took.
        """
        has_budget = self.plan.measure.total_s is not None
        if number >= (MOST_PROCESSES if has_budget else 2 * self.processes):
            return False
        if has_budget:
            return True
        if not any(max(found, default=0) > number - FEWEST_PROCESSES for found in self._undisturbed().values()):
            return False
        seconds = [(n, each[n].elapsed_s or 0.0) for each in self.finished.values() for n in each if n]
        planned = sum(s for n, s in seconds if n <= self.processes)
        return sum(s for n, s in seconds if n > self.processes) <= EXTRA_SHARE * planned
