"""Judges fresh processes of the candidate against the one process of a stored baseline."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ctxbench.gate.baseline import RelativeLatency, StoredRow
from ctxbench.gate.rows import UNKNOWN, Estimate, RowKey, RowVerdict
from ctxbench.gate.rules import ABOVE, BELOW, CONTAINED, Gate, GateRule
from ctxbench.statistics import holm, p_value_above, t_quantile

# By how much of the control workload's change a row's change may differ from it when the whole machine changes: with a
# control that other load moved by 28 and by 43 % (standard deviations), 19 and 20 of 22 rows kept within this.
CONTROL_SHARE = 0.25


@dataclass(frozen=True)
class ProcessFailure:
    """Why a row could not be measured in a process, or is missing there."""

    message: str


ProcessResult = RelativeLatency | ProcessFailure
MeasureProcess = Callable[[Sequence[RowKey]], Mapping[RowKey, ProcessResult]]


def estimate_from_processes(
    processes: Sequence[RelativeLatency], baseline: RelativeLatency, confidence: float
) -> Estimate:
    """The mean change of fresh processes against the baseline's single one, with its prediction interval.

    Processes differ from each other (address layout, what the allocator did), the baseline's from the candidate's too:
    with the spread s between N candidate processes, the error of the difference is s sqrt(1 + 1/N), and what the
    baseline's says of itself. The interval is wider by CONTROL_SHARE of what the control workload moved.
    """
    if not processes:
        return UNKNOWN
    change = float(np.mean([each.row for each in processes])) - baseline.row
    control = float(np.mean([each.control for each in processes])) - baseline.control
    if len(processes) == 1:
        return Estimate(change, -math.inf, math.inf, control)
    reach = t_quantile(confidence, len(processes)) * _error(processes, baseline) + CONTROL_SHARE * abs(control)
    return Estimate(change, change - reach, change + reach, control)


def p_above(processes: Sequence[RelativeLatency], baseline: RelativeLatency, bound: float) -> float:
    """The one-sided p value that belongs to `estimate_from_processes`: that the change lies above `bound`."""
    estimate = estimate_from_processes(processes, baseline, 0.5)
    distance = estimate.change - bound - CONTROL_SHARE * abs(estimate.control)
    return p_value_above(distance, _error(processes, baseline), len(processes))


def _error(processes: Sequence[RelativeLatency], baseline: RelativeLatency) -> float:
    spread = float(np.std([each.row for each in processes], ddof=1))
    return math.hypot(spread * math.sqrt(1 + 1 / len(processes)), baseline.error)


def run_stored(
    rows: Sequence[RowKey],
    baseline: Mapping[RowKey, StoredRow],
    measure_process: MeasureProcess,
    rule: GateRule,
    has_time: Callable[[], bool],
) -> tuple[RowVerdict, ...]:
    """Measure fresh candidate processes until every row has a verdict or the time is up; verdicts in the rows' order.

    `measure_process` measures each row it is given in one fresh process, and as the baseline was: a better way spreads
    less, and the interval would be too narrow for the baseline's share of the difference. `rule.looks` count processes;
    they share alpha as they do in `run_gate`. New processes of the candidate tell nothing of the baseline's single one,
    so there is no confirmation run: Holm's correction is over all rows that the baseline has a latency of. A row that
    fails is broken if the baseline had timed it, else it is not compared.
    """
    gate = _StoredGate(rows, measure_process, rule, has_time)
    gate.decide({row: baseline[row] for row in rows})
    return gate.verdicts()


class _StoredGate(Gate[RelativeLatency, ProcessResult]):
    """A gate over processes of the candidate."""

    def decide(self, baseline: Mapping[RowKey, StoredRow]) -> None:
        """Settle every row."""
        self.baseline = baseline
        rows = self.rows
        for look in self.rule.looks:
            rows = self.measure_until(look, rows)
            self._decide_at(look, rows)
            rows = self.undecided(rows)
        for row in rows:
            self.settle(row, "inconclusive", CONTAINED)

    def take(self, row: RowKey, answer: ProcessResult) -> None:
        stored = self.baseline[row]
        if isinstance(answer, ProcessFailure):
            if stored.worked:
                self.settle(row, None, answer.message, "broken")
            else:
                self.settle(row, None, f"{stored.reason} It fails now: {answer.message}", "not compared")
        elif stored.latency is None:
            self.settle(row, None, stored.reason, "not compared")
        else:
            self.samples[row].append(answer)

    def estimate(self, row: RowKey, confidence: float) -> Estimate:
        latency = self.baseline[row].latency
        return UNKNOWN if latency is None else estimate_from_processes(self.samples[row], latency, confidence)

    def _decide_at(self, look: int, rows: Sequence[RowKey]) -> None:
        known = {row: stored.latency for row, stored in self.baseline.items() if stored.latency is not None}
        tests = [p_above(self.samples[row], known[row], self.rule.log_margin(row)) for row in rows]
        adjusted = holm([*tests, *[1.0] * (len(known) - len(rows))])
        for row, p_value in zip(rows, adjusted, strict=False):  # the decided rows' ones come last
            if p_value <= self.rule.look_alpha(look) / 2:
                self.settle(row, "regressed", ABOVE)
            elif self.estimate_at(row, look).high < self.rule.log_margin(row):
                self.settle(row, "ok", BELOW)
