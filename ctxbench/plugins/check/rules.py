"""The gate's decisions: what processes say of two sides goes in, a verdict for each row comes out."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ctxbench.base.number import Number
from ctxbench.base.statistics import FloatArray, holm, t_interval, t_test_above
from ctxbench.plugins.check.rows import UNKNOWN, Estimate, RowKey, RowVerdict, Status, Verdict

Side = Literal["baseline", "candidate", "both"]

BELOW = "The whole confidence interval lies below the margin."
ABOVE = "The whole confidence interval lies above the margin."
FLAGGED = "The first pairs showed a regression"
CONTAINED = "The confidence interval contains the margin."
CORRECTED = (
    "The confidence interval lies above the margin, but by too little for one of several rows (Holm's correction)."
)
CONTROL_MOVED = "The control workload changed by more than the margin: the machine became slower or faster."
NO_TIME = "The time budget was spent before a decision."
UNCONFIRMED = f"{FLAGGED}; a second, independent confirmation is missing: the time budget was spent."


@dataclass(frozen=True)
class PairRatios:
    """One pair of fresh processes, one row: log(candidate / baseline) of the row and of the control workload."""

    row: float
    control: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.row) and math.isfinite(self.control)):
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


@dataclass(frozen=True)
class GateRule:
    """Decision rule for a row: regressed, ok, or neither.

    `margin` is the relative change that matters, `margins` overrides it for single rows. `alpha` is the two-sided error
    of a row's interval over all `looks`, which are counts of pairs: each spends in proportion to its pairs, so that an
    early one ends only a clear case and costs the last little power. `judge_processes` spends it in one look.
    """

    margin: float = 0.05
    alpha: float = 0.05
    looks: tuple[int, ...] = (4, 8, 24)
    margins: Mapping[RowKey, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min([self.margin, *self.margins.values()]) <= 0 or not 0 < self.alpha < 1:
            raise ValueError("A gate needs positive margins and an alpha between 0 and 1.")
        if not self.looks or self.looks[0] < 2 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError("The looks of a gate are rising counts of pairs, the first 2 or more.")

    def look_alpha(self, look: int) -> float:
        """The two-sided error that the look at so many pairs may spend."""
        return self.alpha * look / sum(self.looks)

    def log_margin(self, row: RowKey) -> float:
        """The margin of a row on the scale of its log ratios."""
        return math.log1p(self.margins.get(row, self.margin))


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


def estimate_from_pairs(pairs: Sequence[PairRatios], confidence: float) -> Estimate:
    """The mean log ratio with its t interval over the pairs; an infinite interval for fewer than two."""
    if not pairs:
        return UNKNOWN
    ratios = [pair.row for pair in pairs]
    interval = t_interval(ratios, confidence)
    control = float(np.mean([pair.control for pair in pairs]))
    return Estimate(Number(float(np.mean(ratios)), interval.low, interval.high), control)


def run_gate(
    rows: Sequence[RowKey],
    measure_pair: MeasurePair,
    rule: GateRule,
    has_time: Callable[[], bool],
    end_at_regression: bool = False,
) -> tuple[RowVerdict, ...]:
    """Measure pairs until every row has a verdict or the time is up; or, if asked for, until a regression is certain.

    `measure_pair` measures the rows it is given in one pair of fresh processes and returns a result for each. A row
    leaves as soon as it is decided. Rows that a look flags as regressed are judged anew at once, from new pairs alone
    and with Holm's correction over them; then the undecided rows go on. `has_time` is asked before each pair; without
    time, what is undecided is inconclusive.
    """
    gate = _PairGate(rows, measure_pair, rule, has_time)
    gate.screen(end_at_regression)
    return tuple(gate.settled[row] for row in rows)


class _PairGate:
    """The state of a gate: the pairs of each row so far, and the verdicts on the rows that are settled."""

    def __init__(
        self, rows: Sequence[RowKey], measure_pair: MeasurePair, rule: GateRule, has_time: Callable[[], bool]
    ) -> None:
        if len(set(rows)) != len(rows):
            raise ValueError("A gate was given the same row twice.")
        self.rows, self.measure_pair, self.rule, self.has_time = list(rows), measure_pair, rule, has_time
        self.settled: dict[RowKey, RowVerdict] = {}
        # What the next decision on a row rests on, and the count of what came before its confirmation run.
        self.samples: dict[RowKey, list[PairRatios]] = defaultdict(list)
        self.screening_samples: dict[RowKey, int] = defaultdict(int)

    def measure_until(self, look: int, rows: list[RowKey]) -> list[RowKey]:
        """Measure until each row has `look` samples; settle those that fail or lack the time, and return the others."""
        while rows and len(self.samples[rows[0]]) < look:
            if not self.has_time():
                for row in rows:
                    self.leave(row, UNCONFIRMED if self.screening_samples[row] else NO_TIME)
                return []
            answers = self.measure_pair(rows)
            for row in rows:
                if row not in answers:
                    raise ValueError(f"The measuring processes returned nothing for the row {str(row)!r}.")
                self.take(row, answers[row])
            rows = self.undecided(rows)
        return rows

    def undecided(self, rows: Sequence[RowKey]) -> list[RowKey]:
        return [row for row in rows if row not in self.settled]

    def used(self, row: RowKey) -> int:
        return self.screening_samples[row] + len(self.samples[row])

    def estimate_at(self, row: RowKey, look: int) -> Estimate:
        return estimate_from_pairs(self.samples[row][:look], 1 - self.rule.look_alpha(look))

    def last_look(self, row: RowKey) -> int:
        """The count of pairs at which the row was judged last, 0 before the first look."""
        return max((look for look in self.rule.looks if look <= len(self.samples[row])), default=0)

    def settle(self, row: RowKey, verdict: Verdict | None, reason: str, status: Status = "measured") -> None:
        """With what the row was judged by last; before the first look, with the mean of its samples alone."""
        look = self.last_look(row)
        estimate = self.estimate_at(row, look) if look else self.estimate_at(row, self.rule.looks[0]).alone()
        if verdict == "inconclusive":
            estimate = estimate.undecided(self.rule.log_margin(row))
        self.settled[row] = estimate.verdict(row, status, verdict, self.used(row), reason)

    def leave(self, row: RowKey, why: str = "") -> None:
        """Settle an undecided row: why it goes no further, and what left it open at its last look."""
        self.settle(row, "inconclusive", f"{why} {self._doubt(row)}".strip())

    def screen(self, end_at_regression: bool) -> None:
        """Settle every row."""
        rows = self.rows
        for look in self.rule.looks:
            rows = self.measure_until(look, rows)
            verdicts = {row: self._judge(row, look) for row in rows}
            for row in rows:
                if verdicts[row] == "ok":
                    self.settle(row, "ok", BELOW)
            self.confirm([row for row in rows if verdicts[row] == "regressed"])
            rows = self.undecided(rows)
            if end_at_regression and any(row.verdict == "regressed" for row in self.settled.values()):
                for row in rows:
                    self.leave(row, "The check ended at the regression of another row.")
                return
        for row in rows:
            self.leave(row)

    def confirm(self, rows: list[RowKey]) -> None:
        """Settle flagged rows from new pairs alone: regressed if Holm's test over them says so again."""
        for row in rows:
            self.screening_samples[row] = len(self.samples.pop(row))
        for look in self.rule.looks:
            rows = self.measure_until(look, rows)
            tests = [t_test_above([pair.row for pair in self.samples[row]], self.rule.log_margin(row)) for row in rows]
            for row, p_value in zip(rows, holm(tests), strict=True):
                verdict = self._judge(row, look)
                if verdict == "regressed" and p_value <= self.rule.look_alpha(look) / 2:
                    self.settle(row, "regressed", ABOVE)
                elif verdict == "ok":
                    self.settle(row, "inconclusive", f"{FLAGGED}, the confirmation run showed none.")
            rows = self.undecided(rows)
        for row in rows:
            self.leave(row, f"{FLAGGED}, the confirmation run did not decide.")

    def take(self, row: RowKey, answer: PairResult) -> None:
        if isinstance(answer, PairRatios):
            self.samples[row].append(answer)
        elif answer.side != "both" and answer.excuse:
            self.settle(row, "inconclusive", f"{answer.excuse} {answer.message}")
        elif answer.side == "candidate":
            self.settle(row, None, answer.message, "broken")
        elif self.used(row):
            self.settle(row, "inconclusive", f"The baseline was measured before and failed now: {answer.message}")
        else:
            self.settle(row, None, answer.message, "not compared")

    def _judge(self, row: RowKey, look: int) -> Verdict:
        """Regressed or ok if the whole interval lies on one side of the margin and the control did not pass it."""
        estimate, log_margin = self.estimate_at(row, look), self.rule.log_margin(row)
        if abs(estimate.control) > log_margin:
            return "inconclusive"
        change = estimate.change
        return "regressed" if change.low > log_margin else "ok" if change.high < log_margin else "inconclusive"

    def _doubt(self, row: RowKey) -> str:
        """Reason an undecided row was open at its last look; empty before the first."""
        look, log_margin = self.last_look(row), self.rule.log_margin(row)
        if not look:
            return ""
        estimate = self.estimate_at(row, look)
        moved = abs(estimate.control) > log_margin
        doubt = CONTROL_MOVED if moved else CORRECTED if estimate.change.low > log_margin else CONTAINED
        return doubt if look == len(self.samples[row]) else f"The first {look} of these pairs left it open: {doubt}"
