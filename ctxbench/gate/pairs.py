"""Measures rows in pairs of fresh processes, baseline and candidate, in blocks that alternate between the two."""

import statistics
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from ctxbench.engine.client import Exit, ForkServer
from ctxbench.engine.scheduler import exit_status
from ctxbench.gate.rows import RowKey
from ctxbench.gate.rules import PairFailure, PairRatios, PairResult, Side, pair_log_ratio
from ctxbench.suite import Measure
from ctxbench.worker.protocol import BLOCK, NEXT, Answer, PairRow, TakeSide, Task

# Blocks run A B B A this many times; A is the baseline in one pair and the candidate in the next.
CYCLES = 3


# Called with the round, counted from 0, and which row of how many begins.
Progress = Callable[[int, int, int, str], None]


class Worker(Protocol):
    """A measuring process that takes commands: a fork server, or a test's script."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, task: Task) -> None: ...

    def command(self, command: bytes, timeout_s: float | None = None) -> Answer | Exit: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Source:
    """Where one side's modules come from (None: what is installed) and its rows."""

    tree: Path | None
    rows: Mapping[RowKey, PairRow]


def launch_timer(tree: Path | None) -> Worker:
    """A fork server for rows of this tree that are timed against each other."""
    return ForkServer(tree, static=False)


# Times a block of the row at hand on one side; milliseconds a pass of the control and of the row.
TimeBlock = Callable[[int], Answer]
Result = TypeVar("Result")


class _SideFailed(Exception):
    """A command failed: a message for each side that did, and whether a process ended."""

    def __init__(self, messages: Sequence[str | None], process_ended: bool) -> None:
        super().__init__(messages)
        self.messages, self.process_ended = messages, process_ended


@dataclass(frozen=True)
class Round:
    """One fresh interpreter a source, which prepare the same rows at the same time and time blocks one at a time."""

    sources: Sequence[Source]
    measure: Measure
    launch: Callable[[Path | None], Worker]
    progress: Callable[[int, int, str], None]

    def take(
        self,
        rows: Sequence[RowKey],
        time_row: Callable[[TimeBlock], Result],
        failure: Callable[[Sequence[str | None], bool], Result],
    ) -> dict[RowKey, Result]:
        """Each row's result. After a process has died, the rows that are left go on in new ones."""
        results: dict[RowKey, Result] = {}
        with ExitStack() as stack:
            workers = [stack.enter_context(self.launch(source.tree)) for source in self.sources]
            waiting = list(rows)
            while waiting:
                waiting = self._take(workers, waiting, results, time_row, failure)
        return results

    def _take(
        self,
        workers: Sequence[Worker],
        rows: list[RowKey],
        results: dict[RowKey, Result],
        time_row: Callable[[TimeBlock], Result],
        failure: Callable[[Sequence[str | None], bool], Result],
    ) -> list[RowKey]:
        """Take rows until all are done or a process has died; the rows that are left."""

        def block(side: int) -> Answer:
            reply = workers[side].command(BLOCK, self.measure.timeout_s)
            self._check([reply if index == side else Answer() for index in range(len(workers))])
            assert isinstance(reply, Answer)
            return reply

        for worker, source in zip(workers, self.sources, strict=True):
            worker.start(TakeSide(self.measure, [source.rows[row] for row in rows]))
        try:
            ready = [worker.command(b"", self.measure.timeout_s) for worker in workers]
            for index, row in enumerate(rows):
                self.progress(len(results), len(results) + len(rows) - index, str(row))
                try:
                    self._check(ready)
                    self._check([worker.command(NEXT, self.measure.timeout_s) for worker in workers])
                    results[row] = time_row(block)
                except _SideFailed as failed:
                    results[row] = failure(failed.messages, failed.process_ended)
                    if failed.process_ended:
                        return rows[index + 1 :]
        finally:
            for worker in workers:
                worker.stop()
        return []

    def _check(self, replies: Sequence[Answer | Exit]) -> None:
        """Raise _SideFailed unless all sides are well after a command; one that crashed can go on no more."""
        messages: list[str | None] = []
        ended = False
        for reply in replies:
            if isinstance(reply, Exit):
                status, message = exit_status(reply, self.measure.timeout_s, "the measurement", kernel_killed=False)
                messages.append(f"{status}: {message}")
                ended = True
            else:
                messages.append(str(reply.failure) if reply.failure else None)
                ended |= reply.failure is not None and reply.failure.status == "crashed"
        if any(messages):
            raise _SideFailed(messages, ended)


@dataclass(kw_only=True)
class Processes(ABC, Generic[Result]):
    """Measures rows in fresh processes, one round of them a call; `seconds` has how long each round took."""

    progress: Progress = lambda round_, index, total, row: None
    seconds: list[float] = field(default_factory=list)

    def __call__(self, rows: Sequence[RowKey]) -> Mapping[RowKey, Result]:
        """Measure each row in one round."""
        begin = time.monotonic()
        results = self.take(rows)
        self.seconds.append(time.monotonic() - begin)
        return results

    @abstractmethod
    def take(self, rows: Sequence[RowKey]) -> Mapping[RowKey, Result]:
        """Each row's result in this round."""

    def show(self, index: int, total: int, row: str) -> None:
        self.progress(len(self.seconds), index, total, row)


@dataclass
class Pairs(Processes[PairResult]):
    """Pairs of fresh processes for `run_gate`: call it with the rows to measure.

    Each pair has two new interpreters, so that their address layouts are drawn anew too: children that one process
    forks share its layout, and what that does to a row's speed would look like a change. Pairs take turns in which side
    is launched, prepared and timed first: what being first is worth to a row cancels. `history` keeps every ratio.
    """

    baseline: Source
    candidate: Source
    measure: Measure
    launch: Callable[[Path | None], Worker] = launch_timer
    history: dict[RowKey, list[PairRatios]] = field(default_factory=lambda: defaultdict(list))

    def take(self, rows: Sequence[RowKey]) -> dict[RowKey, PairResult]:
        round_ = Round(list(self._sides.values()), self.measure, self.launch, self.show)
        results = round_.take(rows, self._ratios, self._failure)
        for row, result in results.items():
            if isinstance(result, PairRatios):
                self.history[row].append(result)
        return results

    @property
    def _sides(self) -> dict[str, Source]:
        """The sides, the one first that does everything first in this pair."""
        sides = {"baseline": self.baseline, "candidate": self.candidate}
        return sides if len(self.seconds) % 2 == 0 else dict(reversed(sides.items()))

    def _ratios(self, block: TimeBlock) -> PairResult:
        """Time the blocks of a row that both sides have prepared."""
        control: tuple[list[float], list[float]] = ([], [])
        times: tuple[list[float], list[float]] = ([], [])
        for side in (0, 1, 1, 0) * CYCLES:
            reply = block(side)
            control[side].append(statistics.median(reply.control))
            times[side].append(statistics.median(reply.row))
        return PairRatios(self._log_ratio(times), self._log_ratio(control))

    def _log_ratio(self, blocks: tuple[list[float], list[float]]) -> float:
        """Of candidate to baseline."""
        found = dict(zip(self._sides, ([[median] for median in side] for side in blocks), strict=True))
        return float(pair_log_ratio(found["baseline"], found["candidate"]))

    def _failure(self, messages: Sequence[str | None], process_ended: bool) -> PairResult:
        """The failure of a row in a pair whose sides say these messages (None: well)."""
        said = dict(zip(self._sides, messages, strict=True))
        baseline, candidate = said["baseline"], said["candidate"]
        side: Side = "both" if baseline and candidate else "baseline" if baseline else "candidate"
        return PairFailure(side, candidate or baseline or "", process_ended)
