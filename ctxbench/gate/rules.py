"""The gate's decision: log ratios of process pairs in, a verdict a row and an exit code out."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ctxbench.statistics import FloatArray, holm, t_interval, t_test_above

Verdict = Literal["ok", "regressed", "inconclusive"]
Status = Literal["measured", "broken", "not compared"]
Side = Literal["baseline", "candidate", "both"]


class ExitCode(IntEnum):
    """What the gate says to a shell; 2 is left to usage errors."""

    OK = 0
    REGRESSED = 1
    INCONCLUSIVE = 3
    BROKEN = 4
    NOTHING_COMPARED = 5


@dataclass(frozen=True)
class PairRatios:
    """One pair of fresh processes, one row: log(candidate / baseline) of the row and the control."""

    row: float
    control: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.row) and math.isfinite(self.control)):
            raise ValueError(f"The log ratios of a pair must be finite, not {self}.")


@dataclass(frozen=True)
class PairFailure:
    """A row that could not be measured in a pair: which side failed or lacks it, why, and whether its process ended."""

    side: Side
    message: str
    process_ended: bool = False


PairResult = PairRatios | PairFailure
MeasurePair = Callable[[Sequence[str]], Mapping[str, PairResult]]


@dataclass(frozen=True)
class RowVerdict:
    """What the gate says about one row; `change`, `low`, `high`, `control` are relative (0.1: +10 %).

    `verdict` is None unless `status` is "measured". `control` is the change of the control workload.
    `pairs` counts all pairs used. After a confirmation, `change` and its interval are those of the
    confirming pairs alone, because the pairs that raised the flag overstate the change.
    """

    row: str
    status: Status
    verdict: Verdict | None
    change: float
    low: float
    high: float
    control: float
    pairs: int
    reason: str


@dataclass(frozen=True)
class GateVerdict:
    """Every row's verdict, in the order asked for, and the exit code of the whole."""

    rows: tuple[RowVerdict, ...]
    exit_code: ExitCode


@dataclass(frozen=True)
class GateRule:
    """When a row is regressed, ok, or neither.

    `margin` is the relative change that matters, `margins` overrides it for single rows. `alpha` is the
    two-sided error of a row's interval over all `looks`, which are counts of pairs: each look spends in
    proportion to its pairs, so that an early one ends only a clear case and costs the last little power.
    """

    margin: float = 0.05
    alpha: float = 0.05
    looks: tuple[int, ...] = (4, 8, 24)
    margins: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min([self.margin, *self.margins.values()]) <= 0 or not 0 < self.alpha < 1:
            raise ValueError("A gate needs positive margins and an alpha between 0 and 1.")
        if not self.looks or self.looks[0] < 2 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError("The looks of a gate are rising counts of pairs, the first 2 or more.")

    def look_alpha(self, look: int) -> float:
        """The two-sided error that the look at so many pairs may spend."""
        return self.alpha * look / sum(self.looks)

    def log_margin(self, row: str) -> float:
        """The margin of a row on the scale of its log ratios."""
        return math.log1p(self.margins.get(row, self.margin))


@dataclass(frozen=True)
class Reading:
    """What some pairs say about a row, on the log scale."""

    change: float
    low: float
    high: float
    control: float

    def verdict(self, row: str, status: Status, verdict: Verdict | None, pairs: int, reason: str) -> RowVerdict:
        """The verdict on the row, with these figures as relative changes."""
        change, low, high, control = map(_relative, (self.change, self.low, self.high, self.control))
        return RowVerdict(row, status, verdict, change, low, high, control, pairs, reason)


def pair_log_ratio(blocks_a: ArrayLike, blocks_b: ArrayLike) -> FloatArray:
    """The log ratio b / a of a pair of processes, from blocks of samples `[..., blocks, samples]`.

    The blocks ran A B B A, A B B A ..., so that the k-th block of one side is a neighbour of the k-th of
    the other, and drift raises every other of their differences as much as it lowers the rest. The median
    over these differences of log block medians is not moved by a burst that hits fewer than half of them.
    Returns `[...]`; ValueError unless both sides have the same even number of blocks.
    """
    log_a = np.log(np.median(np.asarray(blocks_a, dtype=np.float64), axis=-1))
    log_b = np.log(np.median(np.asarray(blocks_b, dtype=np.float64), axis=-1))
    count = log_a.shape[-1]
    if log_a.shape != log_b.shape or count == 0 or count % 2:
        raise ValueError(
            f"A B B A needs the same even number of blocks on both sides, not {count} and {log_b.shape[-1]}."
        )
    return np.asarray(np.median(log_b - log_a, axis=-1))


def read_pairs(pairs: Sequence[PairRatios], confidence: float) -> Reading:
    """The mean log ratio with its t interval over the pairs; an infinite interval for fewer than two."""
    if not pairs:
        return Reading(math.nan, -math.inf, math.inf, math.nan)
    ratios = [pair.row for pair in pairs]
    interval = t_interval(ratios, confidence)
    control = float(np.mean([pair.control for pair in pairs]))
    return Reading(float(np.mean(ratios)), interval.low, interval.high, control)


def judge(reading: Reading, log_margin: float) -> Verdict:
    """Regressed or ok if the whole interval lies on one side of the margin and the control held still."""
    if abs(reading.control) > log_margin:
        return "inconclusive"
    if reading.low > log_margin:
        return "regressed"
    return "ok" if reading.high < log_margin else "inconclusive"


def decide_gate(rows: Iterable[RowVerdict], inconclusive_is: Literal["ok", "fail"] = "fail") -> GateVerdict:
    """The exit code of all rows: broken before regressed before inconclusive before ok."""
    rows = tuple(rows)
    verdicts = {row.verdict for row in rows}
    if any(row.status == "broken" for row in rows):
        code = ExitCode.BROKEN
    elif not any(row.pairs for row in rows if row.status == "measured"):
        code = ExitCode.NOTHING_COMPARED
    elif "regressed" in verdicts:
        code = ExitCode.REGRESSED
    elif "inconclusive" in verdicts and inconclusive_is == "fail":
        code = ExitCode.INCONCLUSIVE
    else:
        code = ExitCode.OK
    return GateVerdict(rows, code)


def run_gate(
    rows: Sequence[str],
    measure_pair: MeasurePair,
    rule: GateRule,
    has_time: Callable[[], bool],
    inconclusive_is: Literal["ok", "fail"] = "fail",
    end_at_regression: bool = False,
) -> GateVerdict:
    """Measure pairs until every row has a verdict or the time is up; or, if asked for, until a regression is certain.

    `measure_pair` measures the rows it is given in one pair of fresh processes and returns a result for
    each. A row leaves as soon as it is decided. Rows that a look flags as regressed are judged anew at
    once, from new pairs alone and with Holm's correction over them; then the undecided rows go on.
    `has_time` is asked before each pair; without time, what is undecided is inconclusive.
    """
    if len(set(rows)) != len(rows):
        raise ValueError("A gate was given the same row twice.")
    gate = _Gate(measure_pair, rule, has_time, end_at_regression)
    gate.screen(list(rows))
    return decide_gate((gate.settled[row] for row in rows), inconclusive_is)


class _Gate:
    """The state of one gate: the pairs so far and the rows that are settled."""

    def __init__(
        self, measure_pair: MeasurePair, rule: GateRule, has_time: Callable[[], bool], end_at_regression: bool
    ) -> None:
        self.measure_pair = measure_pair
        self.rule = rule
        self.has_time = has_time
        self.end_at_regression = end_at_regression
        self.settled: dict[str, RowVerdict] = {}
        # The pairs that the next decision on a row rests on, and the count of those before its confirmation.
        self.pairs: dict[str, list[PairRatios]] = defaultdict(list)
        self.screening_pairs: dict[str, int] = defaultdict(int)

    def screen(self, rows: list[str]) -> None:
        """Settle every row."""
        for look in self.rule.looks:
            rows = self._measure_until(look, rows)
            verdicts = {row: judge(self._read(row, look), self.rule.log_margin(row)) for row in rows}
            for row in rows:
                if verdicts[row] == "ok":
                    self._settle(row, "ok", "The whole interval lies below the margin.")
            self.confirm([row for row in rows if verdicts[row] == "regressed"])
            rows = [row for row in rows if verdicts[row] == "inconclusive"]
            if self.end_at_regression and any(row.verdict == "regressed" for row in self.settled.values()):
                for row in rows:
                    self._settle(row, "inconclusive", "The check ended with a regression before this was decided.")
                return
        for row in rows:
            self._settle(row, "inconclusive", self._doubt(row))

    def confirm(self, rows: list[str]) -> None:
        """Settle flagged rows from new pairs alone: regressed if Holm's test over them says so again."""
        for row in rows:
            self.screening_pairs[row] = len(self.pairs[row])
            self.pairs[row] = []
        for look in self.rule.looks:
            rows = self._measure_until(look, rows)
            tests = [t_test_above([pair.row for pair in self.pairs[row]], self.rule.log_margin(row)) for row in rows]
            waiting = []
            for row, p_value in zip(rows, holm(tests), strict=True):
                verdict = judge(self._read(row, look), self.rule.log_margin(row))
                if verdict == "regressed" and p_value <= self.rule.look_alpha(look) / 2:
                    self._settle(row, "regressed", "The whole interval lies above the margin.")
                elif verdict == "ok":
                    self._settle(row, "inconclusive", "Flagged once, but new pairs denied it.")
                else:
                    waiting.append(row)
            rows = waiting
        for row in rows:
            self._settle(row, "inconclusive", f"Flagged once, not confirmed. {self._doubt(row)}")

    def _measure_until(self, look: int, rows: list[str]) -> list[str]:
        """Measure pairs until each row has `look` of them; settle those that fail or lack the time."""
        while rows and len(self.pairs[rows[0]]) < look:
            if not self.has_time():
                for row in rows:
                    self._settle(row, "inconclusive", "The time was up before the next look.")
                return []
            results = self.measure_pair(rows)
            for row in rows:
                self._take(row, results)
            rows = [row for row in rows if row not in self.settled]
        return rows

    def _take(self, row: str, results: Mapping[str, PairResult]) -> None:
        if row not in results:
            raise ValueError(f"The pair of processes returned nothing for the row {row!r}.")
        result = results[row]
        if isinstance(result, PairRatios):
            self.pairs[row].append(result)
        elif result.side == "candidate":
            self._settle(row, None, result.message, status="broken")
        elif self._used(row):
            self._settle(row, "inconclusive", f"Measured before, then failed: {result.message}")
        else:
            self._settle(row, None, result.message, status="not compared")

    def _used(self, row: str) -> int:
        return self.screening_pairs[row] + len(self.pairs[row])

    def _read(self, row: str, look: int) -> Reading:
        return read_pairs(self.pairs[row], 1 - self.rule.look_alpha(look))

    def _look(self, row: str) -> int:
        """The planned look that the row's pairs have come to or are on the way to."""
        return next(look for look in self.rule.looks if look >= len(self.pairs[row]))

    def _doubt(self, row: str) -> str:
        if abs(self._read(row, self._look(row)).control) > self.rule.log_margin(row):
            return "The control workload moved beyond the margin: this machine is unfit now."
        return "The interval holds the margin."

    def _settle(self, row: str, verdict: Verdict | None, reason: str, status: Status = "measured") -> None:
        reading = self._read(row, self._look(row))
        self.settled[row] = reading.verdict(row, status, verdict, self._used(row), reason)


def _relative(log_ratio: float) -> float:
    """A log ratio as a relative change; infinite where it is beyond all numbers."""
    with np.errstate(over="ignore"):
        return float(np.expm1(log_ratio))
