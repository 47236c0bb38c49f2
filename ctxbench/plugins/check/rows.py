"""The rows of a gate: what each is, what is estimated of it, and the verdict on it."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ctxbench.base.mode import MODES
from ctxbench.base.number import Number
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure

Verdict = Literal["ok", "regressed", "inconclusive"]
Status = Literal["measured", "broken", "not compared"]
NO_ROOM = "The GPU had no room for one side while it had for the other:"
OUT_OF_TIME = "It was stopped at a time limit, which other work on the machine can cause:"
# The interval of a row without a verdict says nothing if its ends are more than so many times apart.
WIDEST = 10.0


@dataclass(frozen=True)
class RowKey:
    """A case, by its id, and a mode (`infer` or `train`); without a mode, the case as a whole."""

    case: str
    mode: str = ""

    def __str__(self) -> str:
        return f"{self.case} {self.mode}" if self.mode else self.case


def latency_rows(case: Case) -> list[RowKey]:
    """The rows of a case."""
    return [RowKey(case.id, mode) for mode in MODES]


@dataclass(frozen=True)
class RowVerdict:
    """Verdict of the gate on one row; `change` and `control` are relative (0.1: +10 %).

    `verdict` is None unless `status` is "measured". `control` is the change of the control workload. `replicates`
    counts all pairs of processes (against a stored run: the processes of now). After a confirmation run, `change` is
    that of the confirming pairs alone: the pairs that raised the flag overstate it.
    """

    row: RowKey
    status: Status
    verdict: Verdict | None
    change: Number
    control: float
    replicates: int
    reason: str


@dataclass(frozen=True)
class Estimate:
    """A row's change, and the control's, on the log scale."""

    change: Number
    control: float

    def alone(self) -> "Estimate":
        """With an interval that is not known."""
        return replace(self, change=Number(self.change.value, -math.inf, math.inf))

    def undecided(self, log_margin: float) -> "Estimate":
        """For a row without a verdict: with the interval only if that is why, and says something.

        It is why if it holds the margin: one that lies on one side decided nothing, as where the control changed.
        """
        low, high = self.change.ends
        return self if low <= log_margin <= high and high - low <= math.log(WIDEST) else self.alone()

    def verdict(self, row: RowKey, status: Status, verdict: Verdict | None, replicates: int, reason: str) -> RowVerdict:
        """The verdict on the row, with these figures as relative changes."""
        change, control = self.change.map_monotonic(_relative), _relative(self.control)
        return RowVerdict(row, status, verdict, change, control, replicates, reason)


UNKNOWN = Estimate(Number(math.nan, -math.inf, math.inf), math.nan)


def unmeasured(row: RowKey, status: Status, reason: str) -> RowVerdict:
    """The verdict on a row, or a whole case, that was not measured at all."""
    return UNKNOWN.verdict(row, status, None, 0, reason)


def excuse(failure: Failure) -> str:
    """Other possible cause of such a failure of one side alone; empty if none.

    Both sides are on one GPU at once; whether the module needs more memory is compared exactly. A time limit counts
    the wall's seconds.
    """
    return NO_ROOM if failure.no_gpu_room else OUT_OF_TIME if failure.status == "timeout" else ""


def failed_now(row: RowKey, failure: Failure) -> RowVerdict:
    """The verdict on a row that worked in the baseline: broken, or inconclusive if there is an excuse."""
    if reason := excuse(failure):
        return UNKNOWN.verdict(row, "measured", "inconclusive", 0, f"{reason} {failure}")
    return unmeasured(row, "broken", str(failure))


def _relative(log_ratio: float) -> float:
    """A log ratio as a relative change; infinite where it is beyond all numbers."""
    with np.errstate(over="ignore"):
        return float(np.expm1(log_ratio))
