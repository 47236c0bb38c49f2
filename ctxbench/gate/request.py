"""What a check is asked for: the suite, the margin, the time; and how these are written on a command line."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ctxbench.errors import UsageError, unknown
from ctxbench.gate.rules import GateRule
from ctxbench.results import MODES
from ctxbench.suite import Case, Suite

InconclusiveIs = Literal["ok", "fail"]
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Request:
    """What to check, and how: `margin` None takes the suite's; `budget_s` is for the whole check, in seconds."""

    suite: Suite
    margin: float | None = None
    budget_s: float = 300.0
    inconclusive_is: InconclusiveIs = "fail"

    def rule(self, cases: Iterable[Case]) -> GateRule:
        """The gate's rule, with the margins of these cases' rows."""
        gate = self.suite.file.gate
        if self.margin is not None:
            return GateRule(margin=self.margin)
        margins = {row_name(case, mode): gate.of(case.module, mode) for case in cases for mode in MODES}
        return GateRule(margin=gate.margin, margins=margins)

    @property
    def timed(self) -> bool:
        """Whether the suite asks for latency at all."""
        return "latency" in self.suite.file.metrics


class Deadline:
    """Whether a budget, which runs from the making of this, has room for one more of what took `last_s()` seconds."""

    def __init__(self, budget_s: float) -> None:
        self._start = time.monotonic()
        self._budget_s = budget_s
        self.last_s: Callable[[], float] = lambda: 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def has_time(self) -> bool:
        return self.elapsed_s + self.last_s() <= self._budget_s


def row_name(case: Case, mode: str) -> str:
    """The name of a latency row."""
    return f"{case.id} {mode}"


def parse_share(text: str, option: str) -> float:
    """`5%` or `0.05` as 0.05. UsageError unless it is a positive number below 10 (1000 %)."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 10:
        raise UsageError(f"{option} {text!r} is no positive share, such as 5% or 0.05")
    return share


def parse_seconds(text: str, option: str) -> float:
    """`90s`, `10m`, `1h` or plain seconds. UsageError unless it is a positive time."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not found or float(found[1]) == 0:
        raise UsageError(f"{option} {text!r} is no time, such as 90s or 10m")
    return float(found[1]) * SECONDS[found[2]]


def parse_inconclusive_is(text: str) -> InconclusiveIs:
    """`ok` or `fail`. UsageError for anything else."""
    if text == "ok":
        return "ok"
    if text == "fail":
        return "fail"
    raise unknown("value of --inconclusive-is", text, ["ok", "fail"])
