"""Measures rows in pairs of fresh processes, baseline and candidate, in blocks that alternate between the two."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ctxbench.engine.client import Exit, Zygote
from ctxbench.engine.pair import BLOCK, NEXT
from ctxbench.engine.scheduler import exit_status
from ctxbench.gate.rules import PairFailure, PairRatios, PairResult, Side, pair_log_ratio
from ctxbench.suite import Measure

# Blocks run A B B A this many times; A is the baseline in one pair and the candidate in the next.
CYCLES = 3


# Told which row of how many begins, in which pair, counted from 0.
Progress = Callable[[int, int, int, str], None]


class Worker(Protocol):
    """A measuring process that takes turns: a zygote, or a test's script."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, task: Mapping[str, Any]) -> None: ...

    def turn(self, command: bytes, timeout_s: float | None = None) -> dict[str, Any] | Exit: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Source:
    """Where one side's modules come from (None: what is installed) and its rows as `engine.pair` takes them."""

    tree: Path | None
    rows: Mapping[str, Mapping[str, Any]]


def launch_timer(tree: Path | None) -> Worker:
    """A zygote for rows of this tree that are timed against each other."""
    return Zygote(tree, timer=True)


# Times a block of the row at hand on one side; milliseconds a pass of the control and of the row.
TimeBlock = Callable[[int], dict[str, list[float]]]
Result = TypeVar("Result")


class _SideFailed(Exception):
    """A turn failed: a message for each side that did, and whether a process ended."""

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
        rows: Sequence[str],
        time_row: Callable[[TimeBlock], Result],
        failure: Callable[[Sequence[str | None], bool], Result],
    ) -> dict[str, Result]:
        """Each row's result. After a process has died, the rows that are left go on in new ones."""
        results: dict[str, Result] = {}
        with ExitStack() as stack:
            workers = [stack.enter_context(self.launch(source.tree)) for source in self.sources]
            waiting = list(rows)
            while waiting:
                waiting = self._take(workers, waiting, results, time_row, failure)
        return results

    def _take(
        self,
        workers: Sequence[Worker],
        rows: list[str],
        results: dict[str, Result],
        time_row: Callable[[TimeBlock], Result],
        failure: Callable[[Sequence[str | None], bool], Result],
    ) -> list[str]:
        """Take rows until all are done or a process has died; the rows that are left."""

        def block(side: int) -> dict[str, list[float]]:
            reply = workers[side].turn(BLOCK, self.measure.timeout_s)
            self._check([reply if index == side else {} for index in range(len(workers))])
            assert isinstance(reply, dict)
            return reply

        for worker, source in zip(workers, self.sources, strict=True):
            task_rows = [dict(source.rows[row]) for row in rows]
            worker.start({"task": "pair", "measure": self.measure.model_dump(), "rows": task_rows})
        try:
            ready = [worker.turn(b"", self.measure.timeout_s) for worker in workers]
            for index, row in enumerate(rows):
                self.progress(len(results), len(results) + len(rows) - index, row)
                try:
                    self._check(ready)
                    self._check([worker.turn(NEXT, self.measure.timeout_s) for worker in workers])
                    results[row] = time_row(block)
                except _SideFailed as failed:
                    results[row] = failure(failed.messages, failed.process_ended)
                    if failed.process_ended:
                        return rows[index + 1 :]
        finally:
            for worker in workers:
                worker.stop()
        return []

    def _check(self, replies: Sequence[dict[str, Any] | Exit]) -> None:
        """Raise _SideFailed unless all sides are well after a turn."""
        messages: list[str | None] = []
        for reply in replies:
            if isinstance(reply, Exit):
                status, message = exit_status(reply, self.measure.timeout_s, "the measurement", kernel_killed=False)
                messages.append(f"{status}: {message}")
            else:
                failure = reply.get("failure")
                messages.append(f"{failure['status']}: {failure['message']}" if failure else None)
        if any(messages):
            raise _SideFailed(messages, any(isinstance(reply, Exit) for reply in replies))


@dataclass
class Pairs:
    """Pairs of fresh processes for `run_gate`: call it with the rows to measure.

    Each pair has two new interpreters, so that their address layouts are drawn anew too: children that one process
    forks share its layout, and what that does to a row's speed would look like a change. Pairs take turns in which side
    is launched, prepared and timed first: what being first is worth to a row cancels. `history` keeps every ratio,
    `seconds` how long each pair took.
    """

    baseline: Source
    candidate: Source
    measure: Measure
    progress: Progress = lambda pair, index, total, row: None
    launch: Callable[[Path | None], Worker] = launch_timer
    history: dict[str, list[PairRatios]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)

    def __call__(self, rows: Sequence[str]) -> dict[str, PairResult]:
        """Measure each row in one pair."""
        begin = time.monotonic()
        sides = self._sides
        round_ = Round([sides[name] for name in sides], self.measure, self.launch, self._show)
        results = round_.take(rows, self._ratios, self._failure)
        for row, result in results.items():
            if isinstance(result, PairRatios):
                self.history[row].append(result)
        self.seconds.append(time.monotonic() - begin)
        return results

    def _show(self, index: int, total: int, row: str) -> None:
        self.progress(len(self.seconds), index, total, row)

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
            control[side].append(statistics.median(reply["control"]))
            times[side].append(statistics.median(reply["row"]))
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
