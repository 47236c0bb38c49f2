"""Measures rows in pairs of fresh processes, baseline and candidate, in blocks that alternate between the two."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ctxbench.base import clocks as this_machine
from ctxbench.base.statistics import t_quantile
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.engine.remote import task_of
from ctxbench.model.case import Measure
from ctxbench.model.messages import Failure
from ctxbench.plugins.check.evidence import BudgetSpent, PairFailure, PairRatios, PairResult, Side, pair_log_ratio
from ctxbench.plugins.check.rows import RowKey, excuse
from ctxbench.plugins.check.rules import GateRule
from ctxbench.plugins.check.wire import BLOCK, NEXT, PairRow
from ctxbench.worker.protocol import Answer, Task

# Blocks run A B B A this many times at least; A is the baseline in one pair and the candidate in the next.
CYCLES = 3
# What a fresh pair of processes does to a row (standard deviation of its log ratio), and what a second of blocks adds
# beside busy neighbours, in processor time: attention and linear attention, 6 and 48 ms a pass, at a load of 9 on two
# cores.
BETWEEN, WITHIN = 0.015, 0.027


# Called with the round, counted from 0, and which row of how many begins.
OnRow = Callable[[int, int, int, str], None]


class Worker(Protocol):
    """A measuring process that takes commands: a fork server, or a test's script."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, task: Task, timeout_s: float = math.inf) -> None: ...

    def command(self, command: bytes, timeout_s: float | None = None) -> Answer | Exit: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Source:
    """Source of one side's modules (None: the installed ones) and its rows."""

    tree: Path | None
    rows: Mapping[RowKey, PairRow]


def launch_timer(tree: Path | None) -> Worker:
    """A fork server for rows of this tree that are timed against each other."""
    return ForkServer(tree, static=False)


def best_row_s(overhead_s: float, rows: int, pair_s: float) -> float:
    """Seconds of blocks for each row of a pair that costs `overhead_s` to launch and prepare, and may take `pair_s`.

    The error that is left after a budget is least here: n pairs fit of overhead + rows * s seconds, and each row's mean
    has the variance (BETWEEN^2 + WITHIN^2 / s) / n.
    """
    return max(0.0, min(WITHIN / BETWEEN * math.sqrt(overhead_s / rows), (pair_s - overhead_s) / rows))


def best_pair_s(overhead_s: float, rows: int, budget_s: float, rule: GateRule) -> float:
    """Seconds that a pair may take, so that the look with the narrowest interval comes within the budget."""
    widths = {}
    for look in rule.looks:
        if row_s := best_row_s(overhead_s, rows, budget_s / look):
            error = math.sqrt((BETWEEN**2 + WITHIN**2 / row_s) / look)
            widths[budget_s / look] = t_quantile(1 - rule.look_alpha(look), look) * error
    return min(widths, key=widths.__getitem__, default=0.0)


class _Failed(Exception):
    """A command failed on a side, or on both."""

    def __init__(self, failure: PairFailure) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass
class Pairs:
    """Pairs of fresh processes: call it with the rows to measure in one.

    Each pair has two new interpreters, so that their address layouts are drawn anew too: children that one process
    forks share its layout, and what that does to a row's speed would look like a change. Pairs take turns in which side
    is launched, prepared and timed first: what being first is worth to a row cancels. `seconds` are how long each pair
    took. After the first pair a row's blocks go on for the seconds that are best for a pair of `pair_s`, which is given
    the seconds that launching and preparing took in that pair, and how many rows it had. A pair that is under way when
    the seconds `left_s` are over is given up: BudgetSpent.
    """

    baseline: Source
    candidate: Source
    measure: Measure
    launch: Callable[[Path | None], Worker] = launch_timer
    progress: OnRow = lambda round_, index, total, row: None
    seconds: list[float] = field(default_factory=list)
    pair_s: Callable[[float, int], float] = lambda overhead_s, rows: 0.0
    left_s: Callable[[], float] = lambda: math.inf
    _pair_s: float | None = None
    _timing_s: float = 0.0
    _row_s: float = 0.0

    def __call__(self, rows: Sequence[RowKey]) -> dict[RowKey, PairResult]:
        """Each row's result in one pair. After a process has died, the rows that are left go on in new children."""
        begin = this_machine.here.wall_s()
        results: dict[RowKey, PairResult] = {}
        if self.seconds:
            overhead_s = self.seconds[-1] - self._timing_s
            if self._pair_s is None:
                self._pair_s = self.pair_s(overhead_s, len(rows))
            self._row_s = best_row_s(overhead_s, len(rows), self._pair_s)
        self._timing_s = 0.0
        with ExitStack() as stack:
            workers = {side: stack.enter_context(self.launch(source.tree)) for side, source in self._sides.items()}
            waiting = list(rows)
            while waiting:
                waiting = self._take(workers, waiting, results)
        self.seconds.append(this_machine.here.wall_s() - begin)
        return results

    @property
    def _sides(self) -> dict[Side, Source]:
        """The sides, the one first that does everything first in this pair."""
        sides: dict[Side, Source] = {"baseline": self.baseline, "candidate": self.candidate}
        return sides if len(self.seconds) % 2 == 0 else dict(reversed(sides.items()))

    def _take(
        self, workers: Mapping[Side, Worker], rows: list[RowKey], results: dict[RowKey, PairResult]
    ) -> list[RowKey]:
        """Take rows until all are done or a process has died; the rows that are left."""
        for side, source in self._sides.items():
            own, limit = [source.rows[row] for row in rows], self.measure.memory_limit_gib
            try:
                workers[side].start(task_of("side", self.measure, own, memory_limit_gib=limit), self._left())
            except TimeoutError:
                raise BudgetSpent from None
        try:
            ready = self._command(workers, b"")
            for index, row in enumerate(rows):
                self.progress(len(self.seconds), len(results), len(results) + len(rows) - index, str(row))
                try:
                    self._answers(ready)
                    self._answers(self._command(workers, NEXT))
                    results[row] = self._ratios(workers)
                except _Failed as failed:
                    results[row] = failed.failure
                    if failed.failure.process_ended:
                        return rows[index + 1 :]
        finally:
            for worker in workers.values():
                worker.stop()
        return []

    def _ratios(self, workers: Mapping[Side, Worker]) -> PairRatios:
        """Time the blocks of a row that both sides have prepared."""
        wall: dict[Side, list[list[float]]] = defaultdict(list)
        cpu: dict[Side, list[list[float]]] = defaultdict(list)
        first, second = workers
        begin = this_machine.here.wall_s()
        spent = 0.0
        while len(wall[first]) < 2 * CYCLES or spent < self._row_s:
            for side in (first, second, second, first):
                (answer,) = self._answers(self._command({side: workers[side]}, BLOCK))
                wall[side].append([statistics.median(answer.wall)])
                if answer.cpu:
                    cpu[side].append([statistics.median(answer.cpu)])
            spent = this_machine.here.wall_s() - begin
        self._timing_s += spent
        both = len(cpu["baseline"]) == len(cpu["candidate"]) == len(wall["baseline"])
        return PairRatios(_ratio(wall), _ratio(cpu) if both else None)

    def _command(self, workers: Mapping[Side, Worker], command: bytes) -> dict[Side, Answer | Exit]:
        """The replies of the sides, each within the time limit; BudgetSpent where the check's own ends first."""
        replies: dict[Side, Answer | Exit] = {}
        for side, worker in workers.items():
            replies[side] = worker.command(command, min(self.measure.timeout_s, self._left()))
            if isinstance(replies[side], Exit) and self.left_s() <= 0:
                raise BudgetSpent
        return replies

    def _left(self) -> float:
        """The seconds until the check's time ends; BudgetSpent where it has."""
        if (left_s := self.left_s()) <= 0:
            raise BudgetSpent
        return left_s

    def _answers(self, replies: Mapping[Side, Answer | Exit]) -> list[Answer]:
        """Answers of the sides to a command; raises _Failed unless all are well. One that crashed ends its pair."""
        failures: dict[Side, Failure] = {}
        answers: list[Answer] = []
        ended = False
        for side, reply in replies.items():
            if isinstance(reply, Exit):
                failures[side] = Failure(*reply.status(self.measure.timeout_s, "the measurement", kernel_killed=False))
                ended = True
            elif reply.failure:
                failures[side] = reply.failure
                ended |= reply.failure.status == "crashed"
            else:
                answers.append(reply)
        if failures:
            failed: Side = "both" if len(failures) == 2 else next(iter(failures))
            failure = failures.get("candidate") or failures["baseline"]
            raise _Failed(PairFailure(failed, str(failure), ended, excuse(failure)))
        return answers


def _ratio(times: Mapping[Side, list[list[float]]]) -> float:
    """The log ratio of both sides' blocks, each of one median."""
    return float(pair_log_ratio(times["baseline"], times["candidate"]))
