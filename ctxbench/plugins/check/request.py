"""Request for a check: the suite, the margin, the time; and its form on a command line."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctxbench.base import clocks as this_machine
from ctxbench.base import limits
from ctxbench.base.errors import UsageError, unknown
from ctxbench.model.case import Case
from ctxbench.model.grid import Suite
from ctxbench.plugins.check.result import ACCEPTABLE, InconclusiveIs
from ctxbench.plugins.check.rows import latency_rows
from ctxbench.plugins.check.rules import GateRule


@dataclass(frozen=True)
class Request:
    """Request for a check: `margin` None takes the suite's; `budget_s` is for the whole check, in seconds.

    `accepted` are the exact quantities (columns) whose growth up to a share is no regression; `renamed` maps new names
    of classes to those that the baseline has. With `must_match`, outputs that changed fail the check. A predicted time
    decides only with a `predicted_margin`. `inconclusive_is`: whether rows that cannot be decided fail it, or give a
    code of their own (skip). `adapters` are files of the working tree that the baseline gets, too. The budget runs from
    `begun_s` of the wall's clock (None: from the check's beginning).
    """

    suite: Suite
    margin: float | None = None
    budget_s: float = 600.0
    inconclusive_is: InconclusiveIs = "ok"
    predicted_margin: float | None = None
    accepted: Mapping[str, float] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    adapters: Sequence[str | Path] = ()
    must_match: bool = True
    begun_s: float | None = None

    def rule(self, cases: Iterable[Case]) -> GateRule:
        """The gate's rule, with the margins of these cases' rows."""
        gate = self.suite.file.gate
        if self.margin is not None:
            return GateRule(margin=self.margin)
        margins = {row: gate.of(case.module, row.mode) for case in cases for row in latency_rows(case)}
        return GateRule(margin=gate.margin, margins=margins)

    def stored_rule(self, cases: Iterable[Case]) -> GateRule:
        """The rule against a stored run: one look, and no call below the margin, for the machine itself changes."""
        return replace(self.rule(cases), looks=(1,), tolerance=math.inf)

    def limits(self) -> dict[str, float]:
        """The largest relative growth of each exact quantity that may grow, by the request or else by its suite."""
        return parse_accepted(self.suite.file.gate.accept, f"{self.suite.path}: [gate] accept") | {**self.accepted}

    @property
    def timed(self) -> bool:
        """Return whether the suite asks for latency at all."""
        return "latency" in self.suite.file.metrics


# What is under way when the budget is spent may take it this many times, and a process at least so many seconds.
OVERRUN, LEAST_S = 1.25, 0.1
LISTING = "listing the cases"


class Deadline:
    """A budget that runs from `begun_s` (None: from here), and whether it has room for what comes next.

    That is expected to take as long as what came before: a pair of processes as long as the last, whose `seconds` are
    kept, and the first pair as long as LISTING, which starts the processes of both sides and loads the modules there,
    too. `spent` are the seconds of each stage so far, `step_s` those of the last case of one.
    """

    def __init__(self, budget_s: float, begun_s: float | None = None) -> None:
        self._start = this_machine.here.wall_s() if begun_s is None else begun_s
        self._budget_s = budget_s
        self.seconds: Sequence[float] = ()
        self.spent: dict[str, float] = {}
        self.step_s = 0.0

    @property
    def elapsed_s(self) -> float:
        return this_machine.here.wall_s() - self._start

    @property
    def left_s(self) -> float:
        return self._budget_s - self.elapsed_s

    @property
    def latest_s(self) -> float:
        """Seconds until what is under way is stopped; nothing begins after the budget is spent."""
        return OVERRUN * self._budget_s - self.elapsed_s

    def cut(self, limit_s: float) -> float:
        """A limit in seconds for what begins now; above 0, since a process that gets none never ends."""
        return max(min(limit_s, self.latest_s), LEAST_S)

    def ended(self, stage: str) -> None:
        """Book the time since the last stage."""
        self.spent[stage] = self.elapsed_s - sum(self.spent.values())

    def has_time(self) -> bool:
        """Return whether one more pair fits."""
        return (self.seconds[-1] if self.seconds else self.spent.get(LISTING, 0.0)) <= self.left_s

    def steps(self, names: Sequence[str], is_sure: bool) -> Iterator[str]:
        """The names as long as the next case fits; the first of what is sure may take the overrun, too."""
        for number, name in enumerate(names):
            left_s = self.latest_s if is_sure and not number else self.left_s
            if left_s <= 0 or self.step_s > left_s:
                return
            begin_s = self.elapsed_s
            yield name
            self.step_s = self.elapsed_s - begin_s


def parse_share(text: str, option: str) -> float:
    """`5%` or `0.05` as 0.05. UsageError unless it is a number of `limits.SHARE`."""
    number = text.strip().removesuffix("%")
    try:
        share = limits.decimal(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if share <= 0:
        raise UsageError(f"{option} {text!r} is not a positive share, such as 5% or 0.05")
    limits.SHARE.check_option(option, share)
    return share


def parse_accepted(texts: Iterable[str], option: str = "--accept") -> dict[str, float]:
    """The exact quantities of metrics that may grow, each with the largest share, from `macs=5%` or `macs` (any).

    UsageError for a metric that has none, and for a share that is none.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, equals, share = (part.strip() for part in text.partition("="))
        if name not in ACCEPTABLE:
            raise unknown(f"metric of {option}", name, ACCEPTABLE)
        most = parse_share(share, f"{option} {name}") if equals else math.inf
        found |= dict.fromkeys(ACCEPTABLE[name], most)
    return found


def parse_renamed(texts: Iterable[str]) -> dict[str, str]:
    """Old names by new ones, from `OLD=NEW`. UsageError for a text of another form."""
    pairs = [text.partition("=") for text in texts]
    for old, _, new in pairs:
        if not (old.strip() and new.strip()):
            raise UsageError("--renamed takes OLD=NEW, such as MyContext=MyBetterContext")
    return {new.strip(): old.strip() for old, _, new in pairs}


def parse_outputs(text: str) -> bool:
    """Return whether outputs must match: `must-match`, or `may-change`. UsageError for anything else."""
    if text not in ("must-match", "may-change"):
        raise unknown("value of --outputs", text, ["must-match", "may-change"])
    return text == "must-match"
