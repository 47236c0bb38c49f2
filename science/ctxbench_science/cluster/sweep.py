"""Measures the cases of a suite on many slots at once: a slot takes some cases at a time and keeps their processes."""

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from ctxbench.base.errors import UsageError
from ctxbench.engine.one_process import CaseOutcome, Executor, Plan, blank_record
from ctxbench.engine.progress import Quiet, named
from ctxbench.engine.rounds import Rounds, Yardstick
from ctxbench.model.case import Case
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.record import Record
from ctxbench.results.run_folder import RunFolder

# A slot takes at most so many cases at a time. They share the start of an interpreter in each round.
MOST_CASES = 16
# How often a case is measured anew after the slot that measured it was lost.
RETRIES = 1
# Seconds between two writings of records.csv while slots measure.
WRITE_S = 30.0
_POLL_S = 0.2


class SlotLost(RuntimeError):
    """A slot measures nothing more; the message is a clause that says why."""


class MeasuringSlot(Protocol):
    """Slot that measures one case at a time: a GPU, or the processors of a host. Its executors raise SlotLost."""

    @property
    def name(self) -> str: ...

    @property
    def environment(self) -> Mapping[str, Any]: ...

    @property
    def executor(self) -> Executor:
        """Measures what needs one process."""

    def launch(self) -> AbstractContextManager[Executor]:
        """A new interpreter for a round."""

    def replacement(self) -> "MeasuringSlot | None":
        """A slot in place of this one, which was lost; None if there is none."""


@dataclass(frozen=True)
class SweepPart:
    """A run folder, its cases, and the slots that measure them, all of one kind of device.

    A bundle is cases that are compared with each other: they are measured on one slot.
    """

    folder: RunFolder
    bundles: Sequence[Sequence[Case]]
    slots: Sequence[MeasuringSlot]

    @property
    def cases(self) -> list[Case]:
        return [case for bundle in self.bundles for case in bundle]


def bundles(cases: Iterable[Case], compared: Collection[str]) -> list[list[Case]]:
    """Cases that are compared with each other: the `compared` modules on one input; a module's ways of execution."""
    found: dict[Any, list[Case]] = {}
    for case in cases:
        module = ("compared",) if case.module in compared else (case.module, case.hparams_json)
        point = tuple(getattr(case, name) for name in CONDITIONS if name != "execution")
        found.setdefault((module, point), []).append(case)
    return list(found.values())


def sweep(parts: Sequence[SweepPart], plan: Plan, reporter: Quiet) -> None:
    """Measure what the folders lack, all parts at the same time; each process is on disk as soon as it is reported.

    A slot takes a share of the cases that are left: many at first, one at the end (guided self-scheduling,
    Polychronopoulos and Kuck, 1987). All processes of a case come from one slot; a case that is not complete in its
    folder is measured anew. Raises UsageError if the folder cannot be written, or if every slot of a part is lost.
    """
    shown = _Shown(reporter)
    # A slot tells nothing before a process has ended, so a process is one case's, also on a GPU.
    plan = replace(plan, measure=plan.measure.model_copy(update={"alone": True}))
    queues = [_Queue(part, plan, shown) for part in parts]
    shown.total = sum(queue.left for queue in queues) * plan.processes
    threads = [
        threading.Thread(target=queue.serve, args=(slot,), daemon=True) for queue in queues for slot in queue.part.slots
    ]
    try:
        for thread in threads:
            thread.start()
        written = time.monotonic()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(_POLL_S)
            if time.monotonic() - written >= WRITE_S:
                for queue in queues:
                    queue.write_records()
                written = time.monotonic()
    finally:
        for queue in queues:
            queue.close()
    for queue in queues:
        queue.check()


class _Shown:
    """The reporter of all slots."""

    def __init__(self, reporter: Quiet) -> None:
        self.reporter, self.lock = reporter, threading.Lock()
        self.begun, self.total = 0, 0


class _OfSlot(Quiet):
    """Progress of one slot for the reporter of all; events inside a process are known after it only."""

    def __init__(self, shown: _Shown, name: str) -> None:
        self._shown, self._name = shown, name
        # What is being measured.
        self.current: Case | None = None

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        self.current = case
        with self._shown.lock:
            self._shown.begun += 1
            self._shown.total = max(self._shown.total, self._shown.begun)
            place = f"[{self._shown.begun}/{self._shown.total}] {self._name}"
            self._shown.reporter.stage(f"{place}: {named(number)}: {case.id}")

    def done(self, record: Record) -> None:
        with self._shown.lock:
            self._shown.reporter.done(record)


class _SlotRounds(Rounds):
    """Cases and processes of several slots, each of which has a yardstick of its own."""

    def yardstick(self, case: Case, record: Record) -> Yardstick:
        return *super().yardstick(case, record), record.get("slot")

    def is_complete(self, case: Case) -> bool:
        """Return whether no planned process of a case is missing."""
        return 0 in self.finished[case.id] and not any(self.lacks(case, n + 1) for n in range(self.processes))


class _Queue:
    """The bundles of a part that no slot has taken, and what is finished. Slots are served by a thread each."""

    def __init__(self, part: SweepPart, plan: Plan, shown: _Shown) -> None:
        self.part, self.plan, self._shown = part, plan, shown
        self._changed = threading.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._lost: Counter[str] = Counter()
        self._last_loss = ""
        self._at_work = 0
        found = part.folder.finished()
        known = self._rounds(part.cases, _OfSlot(shown, ""), finished=found)
        open_ = [bundle for bundle in part.bundles if not all(map(known.is_complete, bundle))]
        again = {case.id for bundle in open_ for case in bundle}
        if again & found.keys():
            part.folder.drop(again)
        self._finished = {case: processes for case, processes in found.items() if case not in again}
        self._waiting = deque(list(bundle) for bundle in open_)

    @property
    def left(self) -> int:
        """Number of cases that no slot has taken."""
        return sum(map(len, self._waiting))

    def serve(self, slot: MeasuringSlot) -> None:
        """Measure cases on a slot until none is left, or the slot is lost and not replaced."""
        serving: MeasuringSlot | None = slot
        rates: dict[Any, float | None] = {}
        while serving and (cases := self._take()):
            shown = _OfSlot(self._shown, serving.name)
            run = self._rounds(cases, shown, slot=serving.name)
            try:
                run.once(serving.executor, rates)
                for _ in run.rounds(serving.launch):
                    pass
                self._give_back([])
            except SlotLost as lost:
                self._give_back(self._unfinished(run.cases, shown.current, str(lost)))
                serving, rates = (None if self._closed else serving.replacement()), {}
            except Exception as error:  # ends the sweep, in the thread that waits for it
                self._error = self._error or error
                self.close()

    def write_records(self) -> None:
        """Write records.csv with what is finished."""
        with self._changed:
            run = self._rounds(self.part.cases, _OfSlot(self._shown, ""), finished=self._finished)
            self.part.folder.write_records(run.records())

    def close(self) -> None:
        """Nothing is taken or written from now on, but for the records of what is finished."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        try:
            self.write_records()
        except UsageError as error:
            self._error = self._error or error

    def check(self) -> None:
        """Raise what ended the sweep, or that cases are left because every slot was lost."""
        if self._error:
            raise self._error
        if self.left:
            done = len(self.part.cases) - self.left
            raise UsageError(
                f"every slot was lost, the last one because {self._last_loss}; {done} of {len(self.part.cases)} cases "
                f"are in {self.part.folder.path}, continue with ctxbench resume"
            )

    def _rounds(
        self, cases: Sequence[Case], reporter: Quiet, finished: Mapping[str, Any] | None = None, slot: str = ""
    ) -> _SlotRounds:
        return _SlotRounds(cases, self.plan, reporter, partial(self._keep, slot), finished or {})

    def _take(self) -> list[Case]:
        """The next cases; none if all are finished. Waits for those of others, which come back if a slot is lost."""
        with self._changed:
            while not self._waiting and self._at_work and not self._closed:
                self._changed.wait()
            if self._closed or not self._waiting:
                return []
            slots = len(self.part.slots)
            size = min(MOST_CASES, self.left // (2 * slots if slots > 1 else 1))
            cases = self._waiting.popleft()
            while self._waiting and len(cases) + len(self._waiting[0]) <= size:
                cases += self._waiting.popleft()
            self._at_work += 1
            return cases

    def _give_back(self, cases: list[Case]) -> None:
        with self._changed:
            if cases:
                self._waiting.appendleft(cases)
            self._at_work -= 1
            self._changed.notify_all()

    def _keep(self, slot: str, number: int, outcome: CaseOutcome) -> None:
        with self._changed:
            if self._closed:
                raise SlotLost("the sweep has ended")
            outcome.record.take({"slot": slot})
            outcome.write(self.part.folder, number)
            self._finished.setdefault(outcome.record.case, {})[number] = outcome.record

    def _unfinished(self, cases: Sequence[Case], current: Case | None, why: str) -> list[Case]:
        """The cases of a slot that was lost, to be measured anew; the `current` one at most RETRIES times."""
        with self._changed:
            self._last_loss = why
            if self._closed:
                return []
            self.part.folder.drop({case.id for case in cases})
            for case in cases:
                self._finished.pop(case.id, None)
            if current is None:
                return list(cases)
            self._lost[current.id] += 1
            if self._lost[current.id] <= RETRIES:
                return list(cases)
            record = blank_record(current)
            record.status = "crashed"
            record.message = f"{self._lost[current.id]} slots were lost while they measured this case; the last: {why}"
            self._keep("", 0, CaseOutcome(record, {}, {}))
            _OfSlot(self._shown, "").done(record)
            return [case for case in cases if case is not current]
