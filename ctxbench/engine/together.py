"""Cases in one process: blocks of ctxbench on no clock, which are only counted, and those of a round on a GPU.

Of the first, rows that differ in devices alone have the same passes, which run once. On a GPU a process begins in
seconds, with the device's context and libraries, and passes take milliseconds. What must be alone is not measured here:
the first pass of a case for its memory, and whatever fails.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ctxbench import devices
from ctxbench.base.notes import Note
from ctxbench.engine.cache import is_own
from ctxbench.engine.exit import WENT_ON
from ctxbench.engine.one_process import Begun, CaseOutcome, Executor, Plan, measure_case
from ctxbench.engine.progress import Quiet
from ctxbench.executions import execution
from ctxbench.model.case import Case
from ctxbench.model.record import Record
from ctxbench.registry import BUILT_IN
from ctxbench.worker.protocol import MeasureCases, Measured, Reply


def groups(cases: Sequence[Case], alone: bool) -> list[list[Case]]:
    """The cases, those of one process together, in their order; with `alone` each has a process of its own.

    A module of a person's own is the last of its process, so that nothing that it leaves there reaches another row.
    """
    found: list[list[Case]] = []
    begun: dict[tuple[str, int | None], list[Case]] = {}
    for case in cases:
        conditions = case.device, case.threads
        group = [] if alone or not _shares(case) else begun.get(conditions, [])
        if not group:
            found.append(group)
        group.append(case)
        if _shares(case) and case.reference.startswith(f"{BUILT_IN}."):
            begun[conditions] = group
        elif _shares(case):
            begun.pop(conditions, None)
    return found


def counted_together(cases: Iterable[Case]) -> list[list[Case]]:
    """The cases by passes, those that are only counted and of ctxbench's own blocks in one process."""
    found: dict[str, list[Case]] = {}
    for alike in by_passes(cases):
        counted = is_own(alike[0]) and not devices.has_clock(alike[0].device)
        found.setdefault("" if counted else alike[0].passes, []).extend(alike)
    return [*found.values()]


def by_passes(cases: Iterable[Case]) -> list[list[Case]]:
    """The cases, in their order but that those of the same passes are together."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.passes, []).append(case)
    return [*found.values()]


def _shares(case: Case) -> bool:
    """Return whether a case may share a process: on a device that queues, without a network, a compiler, an export."""
    return devices.device(case.device).queues and not case.network and not execution(case.execution).has_limit


def measure_together(
    cases: Sequence[Case],
    plan: Plan,
    executor: Executor,
    reporter: Quiet,
    begin: Callable[[Case], None],
    keep: Callable[[Case, CaseOutcome], None],
) -> None:
    """Measure cases in one process; `begin` is called before each, `keep` after it, while that process waits.

    One that fails there behind another is measured again alone, and that counts; those after it share another process.
    """
    left = [*cases]
    while left:
        begin(left[0])
        if len(left) == 1:
            keep(left[0], measure_case(left[0], plan, executor, reporter))
            return
        told = _Several(left, plan, reporter, begin, keep)
        ended = executor.run(MeasureCases([plan.task(case) for case in left]), told, told.now.timeout_s)
        case, outcome = told.now.case, told.now.outcome(ended)
        if told.index and outcome.record.status != "ok":
            reason = outcome.record.message
            outcome = measure_case(case, plan, executor, reporter)
            outcome.record.note(*[Note("failed_beside", {"reason": reason})] * (outcome.record.status == "ok"))
        keep(case, outcome)
        left = left[told.index + 1 :]


def measure_static(
    cases: Iterable[Case], plan: Plan, executor: Executor, tell: Callable[[str, Record], object]
) -> None:
    """Tell the record of the static metrics of `plan` for each case, by its id, measured on the meta device."""
    alike: dict[str, list[Case]] = {}
    for case in cases:
        alike.setdefault(replace(case, device=devices.META).id, []).append(case)

    def keep(case: Case, outcome: CaseOutcome) -> None:
        for each in alike[case.id]:
            tell(each.id, outcome.record)

    for group in counted_together(replace(each, device=devices.META) for each, *_ in alike.values()):
        measure_together(group, plan, executor, Quiet(), lambda case: None, keep)


class _Several:
    """Takes the messages of a process of several cases: `now` is the one that they are about, at `index`."""

    def __init__(
        self,
        cases: Sequence[Case],
        plan: Plan,
        reporter: Quiet,
        begin: Callable[[Case], None],
        keep: Callable[[Case, CaseOutcome], None],
    ) -> None:
        self.cases, self.plan, self.reporter, self.begin, self.keep = cases, plan, reporter, begin, keep
        self.index, self.now = 0, Begun(cases[0], plan, reporter)

    def __call__(self, message: Reply) -> None:
        if not isinstance(message, Measured):
            self.now.listener(message)
        elif self.index + 1 < len(self.cases):  # the last one's outcome is that of the process
            self.keep(self.now.case, self.now.outcome(WENT_ON))
            self.index += 1
            self.begin(self.cases[self.index])
            self.now = Begun(self.cases[self.index], self.plan, self.reporter)
