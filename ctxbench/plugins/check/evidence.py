"""The two kinds of evidence on rows: pairs of fresh processes, and the processes of a stored run and of now."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ctxbench.base.limits import FEWEST_PROCESSES
from ctxbench.base.load import OTHERS_LIMIT
from ctxbench.base.statistics import FloatArray
from ctxbench.model.messages import Failure
from ctxbench.plugins.check.rows import ClockName, Estimate, RowKey, RowVerdict, failed_now, unmeasured

Side = Literal["baseline", "candidate", "both"]
# By how much of the control workload's change a row's change may differ from it when the whole machine changes: with a
# control that other load moved by 28 and by 43 % (standard deviations), 19 and 20 of 22 rows kept within this.
CONTROL_SHARE = 0.25


class BudgetSpent(Exception):
    """The check has taken longer than its budget allows, and what was under way is stopped."""


class Evidence(Protocol):
    """Evidence by which rows are judged."""

    def measure(self, rows: Sequence[RowKey]) -> Mapping[RowKey, RowVerdict]:
        """Take one more replicate of each row; the verdicts on those that cannot be measured. May raise BudgetSpent."""
        ...

    def estimate(self, row: RowKey) -> Estimate:
        """Return the estimate from all replicates of a row so far."""
        ...


@dataclass(frozen=True)
class PairRatios:
    """One pair of fresh processes, one row: log(candidate / baseline) of the wall's time and of the processor's.

    `cpu` is None where the processor's time does not say how long a pass takes.
    """

    wall: float
    cpu: float | None = None

    def __post_init__(self) -> None:
        if not all(math.isfinite(each) for each in (self.wall, self.cpu or 0.0)):
            raise ValueError(f"The log ratios of a pair must be finite, not {self}.")


@dataclass(frozen=True)
class PairFailure:
    """A row that could not be measured in a pair: which side failed or lacks it, why, and whether its process ended.

    `excuse` is what else may be the cause, if anything.
    """

    side: Side
    message: str
    process_ended: bool = False
    excuse: str = ""


PairResult = PairRatios | PairFailure
MeasurePair = Callable[[Sequence[RowKey]], Mapping[RowKey, PairResult]]


class PairEvidence:
    """Pairs of fresh processes; `measure_pair` measures rows in one pair and returns a result for each."""

    def __init__(self, measure_pair: MeasurePair) -> None:
        self.measure_pair = measure_pair
        self.history: dict[RowKey, list[PairRatios]] = defaultdict(list)

    def measure(self, rows: Sequence[RowKey]) -> dict[RowKey, RowVerdict]:
        answers = self.measure_pair(rows)
        failed = {}
        for row in rows:
            if row not in answers:
                raise ValueError(f"The measuring processes returned nothing for the row {str(row)!r}.")
            answer = answers[row]
            if isinstance(answer, PairFailure):
                failed[row] = self._failed(row, answer)
            else:
                self.history[row].append(answer)
        return failed

    def ratios(self, row: RowKey) -> tuple[ClockName, list[float]]:
        """The log ratios of a row by the clock that decides: the processor's, if it says all in each pair."""
        pairs = self.history[row]
        cpu = [pair.cpu for pair in pairs if pair.cpu is not None]
        return ("cpu", cpu) if pairs and len(cpu) == len(pairs) else ("wall", [pair.wall for pair in pairs])

    def estimate(self, row: RowKey) -> Estimate:
        """The mean log ratio over the pairs, and its standard error."""
        clock, ratios = self.ratios(row)
        count = len(ratios)
        if not count:
            return Estimate()
        error = float(np.std(ratios, ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        wall = float(np.mean([pair.wall for pair in self.history[row]]))
        return Estimate(float(np.mean(ratios)), error, count - 1, count, clock=clock, wall=wall)

    def _failed(self, row: RowKey, failure: PairFailure) -> RowVerdict:
        estimate = self.estimate(row)
        if failure.side != "both" and failure.excuse:
            return estimate.verdict(row, "measured", "inconclusive", f"{failure.excuse} {failure.message}")
        if failure.side == "candidate":
            return estimate.verdict(row, "broken", None, failure.message)
        if estimate.replicates:
            reason = f"The baseline was measured before and failed now: {failure.message}"
            return estimate.verdict(row, "measured", "inconclusive", reason)
        return unmeasured(row, "not compared", failure.message)


def pair_log_ratio(blocks_a: ArrayLike, blocks_b: ArrayLike) -> FloatArray:
    """The log ratio b / a of a pair of processes, from blocks of samples `[..., blocks, samples]`.

    The blocks ran A B B A, A B B A ..., so that the k-th block of one side is a neighbour of the k-th of the other, and
    drift raises every other of their differences as much as it lowers the rest. The median over these differences of
    log block medians is not moved by a burst that hits fewer than half of them. Returns `[...]`; ValueError unless both
    sides have the same even number of blocks.
    """
    log_a = np.log(np.median(np.asarray(blocks_a, dtype=np.float64), axis=-1))
    log_b = np.log(np.median(np.asarray(blocks_b, dtype=np.float64), axis=-1))
    count = log_a.shape[-1]
    if log_a.shape != log_b.shape or count == 0 or count % 2:
        raise ValueError(f"A B B A needs the same even number of blocks a side, not {count} and {log_b.shape[-1]}.")
    return np.asarray(np.median(log_b - log_a, axis=-1))


@dataclass(frozen=True)
class ProcessLogs:
    """Processes of one time on a row, a number each: logs of medians in ms.

    `row` is the row's latency in units of the control workload. `disturbed`: by other work (`ctxbench.base.load`).
    """

    row: Sequence[float] = ()
    control: Sequence[float] = ()
    disturbed: bool = False

    @property
    def enough(self) -> bool:
        return len(self.row) >= FEWEST_PROCESSES

    def doubt(self, when: str) -> str:
        """Return why these processes cannot be judged, whatever their times; empty if they can."""
        if not self.enough:
            return f"Fewer than {FEWEST_PROCESSES} processes were measured {when}."
        return f"Other work kept more than {OTHERS_LIMIT:.0%} of the cores busy {when}." if self.disturbed else ""


class ProcessEvidence:
    """The processes of a stored run and of now: one replicate, in which `measure_now` measures all of now's."""

    def __init__(
        self,
        before: Mapping[RowKey, ProcessLogs],
        measure_now: Callable[[Sequence[RowKey]], Mapping[RowKey, ProcessLogs | Failure]],
    ) -> None:
        self.before, self.measure_now = before, measure_now
        self.now: dict[RowKey, ProcessLogs] = {}

    def measure(self, rows: Sequence[RowKey]) -> dict[RowKey, RowVerdict]:
        failed = {}
        for row, answer in self.measure_now(rows).items():
            if isinstance(answer, Failure):
                failed[row] = failed_now(row, answer)
            else:
                self.now[row] = answer
        return failed

    def estimate(self, row: RowKey) -> Estimate:
        return compare_processes(self.before[row], self.now[row]) if row in self.now else Estimate()


def compare_processes(before: ProcessLogs, now: ProcessLogs) -> Estimate:
    """The difference of the mean logs, with the standard error of Student's two-sample test with pooled variance.

    The interval is wider by CONTROL_SHARE of the control workload's change, and the test is as strict. Fewer than
    FEWEST_PROCESSES on a side say nothing.
    """
    doubt = before.doubt("in the baseline") or now.doubt("now")
    if not (before.enough and now.enough):
        return Estimate(replicates=len(now.row), doubt=doubt)
    change = float(np.mean(now.row) - np.mean(before.row))
    control = float(np.mean(now.control) - np.mean(before.control))
    sizes = len(before.row), len(now.row)
    freedom = sum(sizes) - 2
    variance = float(np.dot([np.var(before.row), np.var(now.row)], sizes)) / freedom
    error = math.sqrt(variance * (1 / sizes[0] + 1 / sizes[1]))
    return Estimate(change, error, freedom, sizes[1], control, CONTROL_SHARE * abs(control), doubt, wall=change)
