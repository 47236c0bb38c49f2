"""The rows of a gate: what each is, what is estimated of it, and the verdict on it."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ctxbench.base.mode import MODES
from ctxbench.base.number import Number
from ctxbench.base.statistics import p_value_above, t_quantile
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure

GateVerdict = Literal["ok", "regressed", "inconclusive"]
Status = Literal["measured", "predicted", "broken", "not compared", "ok (new)", "ok (repaired)"]
PREDICTED: Status = "predicted"
# A case that works now, and that the baseline lacks or cannot run.
ADDED = ("ok (new)", "ok (repaired)")
# What a row's time is read from: the processor time of the thread that runs the passes, or the wall.
ClockName = Literal["cpu", "wall"]
NO_ROOM = "The GPU had memory for one of the two sides only:"
OUT_OF_TIME = "It was stopped at a time limit, which other work on the machine can cause:"


@dataclass(frozen=True)
class RowKey:
    """A case, by its id, and a mode (`infer` or `train`); without a mode, the case as a whole."""

    case: str
    mode: str = ""

    def __str__(self) -> str:
        return f"{self.case} {self.mode}" if self.mode else self.case


def latency_rows(case: Case) -> list[RowKey]:
    return [RowKey(case.id, mode) for mode in MODES]


@dataclass(frozen=True)
class RowVerdict:
    """Verdict on one row; `change`, `wall` and `control` are relative (0.1: +10 %).

    `verdict` is None unless `status` is "measured", or "predicted" and asked for. `change` is that of the time by
    `clock`, which decides; `wall` is that of the wall's. `control` is the change of the control workload (NaN for
    pairs). `replicates` counts all pairs of processes (against a stored run: the processes of now).
    """

    row: RowKey
    status: Status
    verdict: GateVerdict | None
    change: Number
    control: float
    replicates: int
    reason: str
    clock: ClockName = "wall"
    wall: float = math.nan


@dataclass(frozen=True)
class Estimate:
    """The mean change of a row on the log scale, with its standard error of so many degrees of freedom.

    The error is infinite where nothing is known. `control` and `wall` are means, too. The interval is wider by
    `allowance` on each side. A `doubt` says why the estimate decides nothing.
    """

    change: float = math.nan
    error: float = math.inf
    freedom: int = 0
    replicates: int = 0
    control: float = math.nan
    allowance: float = 0.0
    doubt: str = ""
    clock: ClockName = "wall"
    wall: float = math.nan

    def interval(self, alpha: float) -> Number:
        """The change with Student's two-sided interval of this error."""
        if not math.isfinite(self.error):
            return Number(self.change, -math.inf, math.inf)
        reach = t_quantile(1 - alpha, self.freedom + 1) * self.error + self.allowance
        return Number(self.change, self.change - reach, self.change + reach)

    def p_above(self, bound: float) -> float:
        """The one-sided p value of Student's test that the change lies above `bound`."""
        if not math.isfinite(self.error):
            return 1.0
        return p_value_above(self.change - bound - self.allowance, self.error, self.freedom + 1)

    def verdict(
        self, row: RowKey, status: Status, verdict: GateVerdict | None, reason: str, change: Number | None = None
    ) -> RowVerdict:
        """The verdict on the row; `change`, on the log scale, has the interval that is told (None: none)."""
        interval = change or Number(self.change, -math.inf, math.inf)
        numbers = interval.map_monotonic(_relative), _relative(self.control), self.replicates, reason
        return RowVerdict(row, status, verdict, *numbers, self.clock, _relative(self.wall))


def unmeasured(row: RowKey, status: Status, reason: str) -> RowVerdict:
    """The verdict on a row, or a whole case, that was not measured at all."""
    return Estimate().verdict(row, status, None, reason)


def excuse(failure: Failure) -> str:
    """Other possible cause of such a failure of one side alone; empty if none.

    Both sides are on one GPU at once; whether the module needs more memory is compared exactly. A time limit counts
    the wall's seconds.
    """
    return NO_ROOM if failure.no_gpu_room else OUT_OF_TIME if failure.status == "timeout" else ""


def failed_now(row: RowKey, failure: Failure) -> RowVerdict:
    """The verdict on a row that worked in the baseline: broken, or inconclusive if there is an excuse."""
    if reason := excuse(failure):
        return Estimate().verdict(row, "measured", "inconclusive", f"{reason} {failure}")
    return unmeasured(row, "broken", str(failure))


def _relative(log_ratio: float) -> float:
    """A log ratio as a relative change; infinite where it is beyond all numbers."""
    with np.errstate(over="ignore"):
        return float(np.expm1(log_ratio))
