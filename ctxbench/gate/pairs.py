"""Measures rows in pairs of fresh processes, baseline and candidate, in blocks that alternate between the two."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ctxbench.engine.client import Exit, Zygote
from ctxbench.engine.pair import BLOCK, NEXT
from ctxbench.engine.scheduler import exit_status
from ctxbench.gate.rules import PairFailure, PairRatios, PairResult, Side, pair_log_ratio
from ctxbench.suite import Measure

# Blocks run A B B A this many times, the next pair's B A A B.
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


@dataclass
class Pairs:
    """Pairs of fresh processes for `run_gate`: call it with the rows to measure.

    Each pair has two new interpreters, so that their address layouts are drawn anew too: children that one process
    forks share its layout, and what that does to a row's speed would look like a change. `history` keeps every ratio,
    `seconds` how long each pair took.
    """

    baseline: Source
    candidate: Source
    measure: Measure
    progress: Progress = lambda pair, index, total, row: None
    launch: Callable[[Path | None], Worker] = Zygote
    history: dict[str, list[PairRatios]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)

    def __call__(self, rows: Sequence[str]) -> dict[str, PairResult]:
        """Measure each row in one pair."""
        begin = time.monotonic()
        results: dict[str, PairResult] = {}
        with ExitStack() as stack:
            workers = (
                stack.enter_context(self.launch(self.baseline.tree)),
                stack.enter_context(self.launch(self.candidate.tree)),
            )
            waiting = list(rows)
            while waiting:
                waiting = self._measure(workers, waiting, results)
        for row, result in results.items():
            if isinstance(result, PairRatios):
                self.history[row].append(result)
        self.seconds.append(time.monotonic() - begin)
        return results

    def _measure(self, workers: tuple[Worker, Worker], rows: list[str], results: dict[str, PairResult]) -> list[str]:
        """Measure rows in one process a side until all are done or a process has died; the rows that are left."""
        for worker, source in zip(workers, (self.baseline, self.candidate), strict=True):
            worker.start(
                {"task": "pair", "measure": self.measure.model_dump(), "rows": [dict(source.rows[row]) for row in rows]}
            )
        timeout_s = self.measure.timeout_s
        try:
            replies = [worker.turn(b"", timeout_s) for worker in workers]
            for index, row in enumerate(rows):
                self.progress(len(self.seconds), len(results), len(results) + len(rows) - index, row)
                if not any(isinstance(reply, Exit) for reply in replies):
                    replies = [worker.turn(NEXT, timeout_s) for worker in workers]
                results[row] = self._failure(replies) or self._ratios(workers)
                failed = results[row]
                if isinstance(failed, PairFailure) and failed.process_ended:
                    return rows[index + 1 :]
        finally:
            for worker in workers:
                worker.stop()
        return []

    def _ratios(self, workers: tuple[Worker, Worker]) -> PairResult:
        """Time the blocks of the row that both sides have prepared."""
        control: tuple[list[float], list[float]] = ([], [])
        times: tuple[list[float], list[float]] = ([], [])
        order = (0, 1, 1, 0) if len(self.seconds) % 2 == 0 else (1, 0, 0, 1)
        for side in order * CYCLES:
            reply = workers[side].turn(BLOCK, self.measure.timeout_s)
            replies: list[Any] = [{}, {}]
            replies[side] = reply
            failure = self._failure(replies)
            if failure is not None:
                return failure
            assert isinstance(reply, dict)
            control[side].append(statistics.median(reply["control"]))
            times[side].append(statistics.median(reply["row"]))
        return PairRatios(_log_ratio(times), _log_ratio(control))

    def _failure(self, replies: Sequence[dict[str, Any] | Exit]) -> PairFailure | None:
        """Which sides failed in this turn, and how; None if both are well."""
        messages: list[str | None] = []
        for reply in replies:
            if isinstance(reply, Exit):
                status, message = exit_status(reply, self.measure.timeout_s, "the measurement", kernel_killed=False)
                messages.append(f"{status}: {message}")
            else:
                failure = reply.get("failure")
                messages.append(f"{failure['status']}: {failure['message']}" if failure else None)
        ended = any(isinstance(reply, Exit) for reply in replies)
        baseline, candidate = messages
        if baseline is None and candidate is None:
            return None
        side: Side = "both" if baseline and candidate else "baseline" if baseline else "candidate"
        return PairFailure(side, candidate or baseline or "", ended)


def _log_ratio(blocks: tuple[list[float], list[float]]) -> float:
    return float(pair_log_ratio(*([[median] for median in side] for side in blocks)))
