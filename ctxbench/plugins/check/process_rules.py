"""The decisions against a stored run: medians of processes of then and now go in, a verdict for each row comes out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ctxbench.base.load import OTHERS_LIMIT
from ctxbench.base.number import Number
from ctxbench.base.statistics import FEWEST_PROCESSES, holm, p_value_above, t_quantile
from ctxbench.plugins.check.rows import UNKNOWN, Estimate, RowKey, RowVerdict, Verdict
from ctxbench.plugins.check.rules import ABOVE, BELOW, CONTAINED, CORRECTED, GateRule

# By how much of the control workload's change a row's change may differ from it when the whole machine changes: with a
# control that other load moved by 28 and by 43 % (standard deviations), 19 and 20 of 22 rows kept within this.
CONTROL_SHARE = 0.25


@dataclass(frozen=True)
class ProcessLogs:
    """Logs of the processes' medians in ms for one time of a row, a number each.

    `row` is the row's latency in units of the control workload. `disturbed`: by other work (`ctxbench.base.load`).
    """

    row: Sequence[float] = ()
    control: Sequence[float] = ()
    disturbed: bool = False

    @property
    def enough(self) -> bool:
        return len(self.row) >= FEWEST_PROCESSES


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
        above = estimate.change.low > rule.log_margin(row)
        reason = doubts[row] or (CORRECTED if above else CONTAINED)
        if row in p_values and p_values[row] <= rule.alpha / 2:
            verdict, reason = "regressed", ABOVE
        elif row in p_values and estimate.change.high < rule.log_margin(row):
            verdict, reason = "ok", BELOW
        told = estimate if verdict != "inconclusive" else estimate.undecided(rule.log_margin(row))
        verdicts.append(told.verdict(row, "measured", verdict, len(rows[row][1].row), reason))
    return tuple(verdicts)


def _doubt(before: ProcessLogs, now: ProcessLogs) -> str:
    """Reason for no verdict on the processes, whatever their times; empty if there is none."""
    for side, when in ((before, "in the baseline"), (now, "now")):
        if not side.enough:
            return f"Fewer than {FEWEST_PROCESSES} processes were measured {when}."
        if side.disturbed:
            return f"Other work kept more than {OTHERS_LIMIT:.0%} of the cores busy {when}."
    return ""
