"""The gate's decisions: what processes say of two sides goes in, a verdict for each row comes out."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ctxbench.gate.rows import UNKNOWN, Estimate, RowKey, RowVerdict, Status, Verdict
from ctxbench.machine_load import OTHERS_LIMIT
from ctxbench.number import Number
from ctxbench.statistics import FEWEST_PROCESSES, FloatArray, holm, p_value_above, t_interval, t_quantile, t_test_above

Side = Literal["baseline", "candidate", "both"]

BELOW = "The whole confidence interval lies below the margin."
ABOVE = "The whole confidence interval lies above the margin."
FLAGGED = "The first pairs showed a regression"
CONTAINED = "The confidence interval contains the margin."
NO_TIME = "The time budget was spent before a decision."
UNCONFIRMED = f"{FLAGGED}, and the time budget was spent before the confirmation run decided."
# By how much of the control workload's change a row's change may differ from it when the whole machine changes: with a
# control that other load moved by 28 and by 43 % (standard deviations), 19 and 20 of 22 rows kept within this.
CONTROL_SHARE = 0.25


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


@dataclass(frozen=True)
class ProcessLogs:
    """What the processes of one time say of a row, a number each: logs of medians in ms.

    `row` is the row's latency in units of the control workload. `disturbed`: by other work (`ctxbench.machine_load`).
    """

    row: Sequence[float] = ()
    control: Sequence[float] = ()
    disturbed: bool = False

    @property
    def enough(self) -> bool:
        return len(self.row) >= FEWEST_PROCESSES


PairResult = PairRatios | PairFailure
MeasurePair = Callable[[Sequence[RowKey]], Mapping[RowKey, PairResult]]


@dataclass(frozen=True)
class GateRule:
    """When a row is regressed, ok, or neither.

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


def compare_processes(before: ProcessLogs, now: ProcessLogs, confidence: float, bound: float) -> tuple[Estimate, float]:
    """The difference of the mean logs with its interval, and the one-sided p value that it lies above `bound`.

    Student's two-sample interval and test with pooled variance. The interval is wider by CONTROL_SHARE of the control
    workload's change, and the test is as strict. Fewer than FEWEST_PROCESSES on a side say nothing.
    """
    if not (before.enough and now.enough):
        return UNKNOWN, 1.0
    change = float(np.mean(now.row) - np.mean(before.row))
    control = float(np.mean(now.control) - np.mean(before.control))
    sizes = len(before.row), len(now.row)
    freedom = sum(sizes) - 2
    variance = float(np.dot([np.var(before.row), np.var(now.row)], sizes)) / freedom
    error = math.sqrt(variance * (1 / sizes[0] + 1 / sizes[1]))
    allowance = CONTROL_SHARE * abs(control)
    reach = t_quantile(confidence, freedom + 1) * error + allowance
    estimate = Estimate(Number(change, change - reach, change + reach), control)
    return estimate, p_value_above(change - bound - allowance, error, freedom + 1)


def judge_processes(rows: Mapping[RowKey, tuple[ProcessLogs, ProcessLogs]], rule: GateRule) -> tuple[RowVerdict, ...]:
    """The verdict on each row from its processes of then and now, in one look.

    Regressed by Holm's test over the rows, ok if the interval lies below the margin. Rows with too few processes, or
    with processes that other work disturbed, are inconclusive and no part of the test.
    """
    found = {row: compare_processes(*sides, 1 - rule.alpha, rule.log_margin(row)) for row, sides in rows.items()}
    doubts = {row: _doubt(*sides) for row, sides in rows.items()}
    sound = [row for row, doubt in doubts.items() if not doubt]
    p_values = dict(zip(sound, holm([found[row][1] for row in sound]), strict=True))
    verdicts = []
    for row, (estimate, _) in found.items():
        verdict: Verdict = "inconclusive"
        reason = doubts[row] or CONTAINED
        if row in p_values and p_values[row] <= rule.alpha / 2:
            verdict, reason = "regressed", ABOVE
        elif row in p_values and estimate.change.high < rule.log_margin(row):
            verdict, reason = "ok", BELOW
        verdicts.append(estimate.verdict(row, "measured", verdict, len(rows[row][1].row), reason))
    return tuple(verdicts)


def _doubt(before: ProcessLogs, now: ProcessLogs) -> str:
    """Why the processes cannot be judged, whatever their times; empty if they can."""
    for side, when in ((before, "in the baseline"), (now, "now")):
        if not side.enough:
            return f"Fewer than {FEWEST_PROCESSES} processes were measured {when}."
        if side.disturbed:
            return f"Other work kept more than {OTHERS_LIMIT:.0%} of the cores busy {when}."
    return ""


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
                    self.settle(row, "inconclusive", UNCONFIRMED if self.screening_samples[row] else NO_TIME)
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
        return estimate_from_pairs(self.samples[row], 1 - self.rule.look_alpha(look))

    def estimate_now(self, row: RowKey) -> Estimate:
        """With the confidence of the planned look that the row's samples have come to or are on the way to."""
        return self.estimate_at(row, next(look for look in self.rule.looks if look >= len(self.samples[row])))

    def settle(self, row: RowKey, verdict: Verdict | None, reason: str, status: Status = "measured") -> None:
        self.settled[row] = self.estimate_now(row).verdict(row, status, verdict, self.used(row), reason)

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
                    self.settle(row, "inconclusive", "The check ended at the regression of another row.")
                return
        for row in rows:
            self.settle(row, "inconclusive", self._doubt(row))

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
            self.settle(row, "inconclusive", f"{FLAGGED}, the confirmation run did not decide. {self._doubt(row)}")

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
        if abs(self.estimate_now(row).control) > self.rule.log_margin(row):
            return "The control workload changed by more than the margin: the machine became slower or faster."
        return CONTAINED
