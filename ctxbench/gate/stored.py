"""Judges fresh processes of the candidate against the one process of a stored baseline."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from ctxbench.gate.baseline import Level, StoredRow
from ctxbench.gate.rules import GateRule, Reading, RowVerdict, Status, Verdict
from ctxbench.statistics import holm

# By how much of the control workload's change a row's change may differ from it when the whole machine changes: with a
# control that other load moved by 28 and by 43 % (standard deviations), 19 and 20 of 22 rows kept within this.
CONTROL_SHARE = 0.25


@dataclass(frozen=True)
class ProcessFailure:
    """Why a row could not be measured in a process, or is missing there."""

    message: str


ProcessResult = Level | ProcessFailure
MeasureProcess = Callable[[Sequence[str]], Mapping[str, ProcessResult]]


def read_processes(levels: Sequence[Level], baseline: Level, confidence: float) -> Reading:
    """The mean change of fresh processes against the baseline's single one, with its prediction interval.

    Processes differ from each other (address layout, what the allocator did), the baseline's from the candidate's too:
    with the spread s between N candidate processes, the error of the difference is s sqrt(1 + 1/N), and what the
    baseline's says of itself. The interval is wider by CONTROL_SHARE of what the control workload moved.
    """
    if not levels:
        return Reading(math.nan, -math.inf, math.inf, math.nan)
    change = float(np.mean([level.row for level in levels])) - baseline.row
    control = float(np.mean([level.control for level in levels])) - baseline.control
    if len(levels) == 1:
        return Reading(change, -math.inf, math.inf, control)
    quantile = float(special.stdtrit(len(levels) - 1, (1 + confidence) / 2))
    reach = quantile * _error(levels, baseline) + CONTROL_SHARE * abs(control)
    return Reading(change, change - reach, change + reach, control)


def p_above(levels: Sequence[Level], baseline: Level, bound: float) -> float:
    """The one-sided p value that belongs to `read_processes`: that the change lies above `bound`."""
    reading = read_processes(levels, baseline, 0.5)
    error = _error(levels, baseline)
    distance = reading.change - bound - CONTROL_SHARE * abs(reading.control)
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(len(levels) - 1, -distance / error))


def _error(levels: Sequence[Level], baseline: Level) -> float:
    spread = float(np.std([level.row for level in levels], ddof=1))
    return math.hypot(spread * math.sqrt(1 + 1 / len(levels)), baseline.error)


def run_stored(
    rows: Sequence[str],
    baseline: Mapping[str, StoredRow],
    measure_process: MeasureProcess,
    rule: GateRule,
    has_time: Callable[[], bool],
) -> tuple[RowVerdict, ...]:
    """Measure fresh candidate processes until every row has a verdict or the time is up; verdicts in the rows' order.

    `measure_process` measures each row it is given in one fresh process, and as the baseline was: a better way spreads
    less, and the interval would be too narrow for the baseline's share of the difference. `rule.looks` count processes;
    they share alpha as they do in `run_gate`. New processes of the candidate tell nothing of the baseline's single one,
    so there is no confirmation: Holm's correction is over all rows that have a level. A row that fails is broken if the
    baseline had timed it, else it is not compared.
    """
    if len(set(rows)) != len(rows):
        raise ValueError("A gate was given the same row twice.")
    gate = _StoredGate({row: baseline[row] for row in rows}, measure_process, rule, has_time)
    gate.judge(list(rows))
    return tuple(gate.settled[row] for row in rows)


@dataclass
class _StoredGate:
    """The state of one gate: the processes' levels so far and the rows that are settled."""

    baseline: Mapping[str, StoredRow]
    measure_process: MeasureProcess
    rule: GateRule
    has_time: Callable[[], bool]
    settled: dict[str, RowVerdict] = field(default_factory=dict)
    levels: dict[str, list[Level]] = field(default_factory=lambda: defaultdict(list))

    def judge(self, rows: list[str]) -> None:
        """Settle every row."""
        for look in self.rule.looks:
            rows = self._measure_until(look, rows)
            self._decide(look, rows)
            rows = self._open(rows)
        for row in rows:
            self._settle(row, "inconclusive", "The interval holds the margin.")

    def _measure_until(self, look: int, rows: list[str]) -> list[str]:
        """Measure processes until each row has `look` of them; settle those that fail or lack the time."""
        while rows and len(self.levels[rows[0]]) < look:
            if not self.has_time():
                for row in rows:
                    self._settle(row, "inconclusive", "The time was up before the next look.")
                return []
            results = self.measure_process(rows)
            for row in rows:
                self._take(row, results)
            rows = self._open(rows)
        return rows

    def _take(self, row: str, results: Mapping[str, ProcessResult]) -> None:
        if row not in results:
            raise ValueError(f"The process returned nothing for the row {row!r}.")
        result, stored = results[row], self.baseline[row]
        if isinstance(result, ProcessFailure):
            if stored.worked:
                self._settle(row, None, result.message, "broken")
            else:
                self._settle(row, None, f"{stored.reason} It fails now: {result.message}", "not compared")
        elif stored.level is None:
            self._settle(row, None, stored.reason, "not compared")
        else:
            self.levels[row].append(result)

    def _decide(self, look: int, rows: list[str]) -> None:
        judged = sum(stored.level is not None for stored in self.baseline.values())
        tests = [p_above(self.levels[row], self._level(row), self.rule.log_margin(row)) for row in rows]
        adjusted = holm([*tests, *[1.0] * (judged - len(rows))])
        for row, p_value in zip(rows, adjusted, strict=False):  # the decided rows' ones come last
            if p_value <= self.rule.look_alpha(look) / 2:
                self._settle(row, "regressed", "The whole interval lies above the margin.")
            elif self._read(row, look).high < self.rule.log_margin(row):
                self._settle(row, "ok", "The whole interval lies below the margin.")

    def _level(self, row: str) -> Level:
        level = self.baseline[row].level
        assert level is not None
        return level

    def _read(self, row: str, look: int) -> Reading:
        if self.baseline[row].level is None:
            return Reading(math.nan, -math.inf, math.inf, math.nan)
        return read_processes(self.levels[row], self._level(row), 1 - self.rule.look_alpha(look))

    def _open(self, rows: Iterable[str]) -> list[str]:
        return [row for row in rows if row not in self.settled]

    def _settle(self, row: str, verdict: Verdict | None, reason: str, status: Status = "measured") -> None:
        used = len(self.levels[row])
        reading = self._read(row, next(look for look in self.rule.looks if look >= used))
        self.settled[row] = reading.verdict(row, status, verdict, used, reason)
