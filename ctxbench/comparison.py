"""A value beside another: what it is, its interval, their ratio and their order.

Counts are compared exactly. Two times of one run are compared round by round: each round gives the ratio of two
processes that are neighbours in time, and Student's interval of the mean log ratio decides. The ratio of two predicted
times on one device has a band of its own: what is wrong of both in the same way cancels. A predicted and a measured one
are not compared.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ctxbench import machine_load
from ctxbench.metrics import quantities
from ctxbench.metrics.base import Derivation, Origin, Quantity, RecordRow
from ctxbench.predict import CONFIDENCE_SDS, KERNELS
from ctxbench.statistics import FEWEST_PROCESSES, t_interval

# A ratio has no more decimals.
MOST_DECIMALS = 9


@dataclass(frozen=True)
class Value:
    """A quantity and the interval around it: of no width for a count, of any width for a time without an interval.

    Of a time, `processes` holds the median of each process by its round, and `others_share` which share of the
    cores other work kept busy meanwhile. The interval of a predicted time is its band, and `errors` are the parts of
    its error by source (see `ctxbench.predict.passes.PassTime`).
    """

    value: float
    low: float
    high: float
    processes: Mapping[int, float] = field(default_factory=dict)
    others_share: float | None = None
    origin: Origin = "counted"
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def disturbed(self) -> bool:
        return machine_load.disturbed(self.others_share)

    @property
    def obstacle(self) -> str:
        """Why no verdict rests on it; empty if one may."""
        if self.disturbed:
            return f"other work kept {self.others_share:.0%} of the cores busy"
        return f"fewer than {FEWEST_PROCESSES} processes" if self.high == math.inf else ""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times and its interval: of 95 % over rounds, or the 80 % band of a predicted ratio."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """`1.60 [1.55, 1.66]`: the digits that the interval justifies, four at most unless it is close to 1."""
        half = max((self.high - self.low) / 2, self.value / 1e3)
        decimals = max(-math.floor(math.log10(half)), 0)
        if not self.low <= 1 <= self.high:
            while decimals < MOST_DECIMALS and 1 in (round(self.low, decimals), round(self.high, decimals)):
                decimals += 1
        value, low, high = (f"{each:.{decimals}f}" for each in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def exactly(value: float) -> Value:
    return Value(value, value, value)


def read_value(row: RecordRow, quantity: Quantity, column: str = "") -> Value | None:
    """A quantity of a record, from `column` if it is given; None if it is not known.

    A quantity that derives from a time has the interval and the rounds of that time.
    """
    value = row[column or quantity.column]
    if value is None:
        return None
    if quantity.derive:
        return _derived(quantity.derive, row)
    if not quantity.has_interval:
        return exactly(value)
    low, high = (row[quantity.detail(end)] for end in ("low_ms", "high_ms"))
    if low is None or high is None:
        low, high = 0.0, math.inf
    processes, others = row.get(quantity.detail("processes")) or {}, row["others_share"]
    errors = json.loads(row.get(quantity.detail("errors")) or "{}")
    return Value(value, low, high, processes, others, quantity.origin_of(row), errors)


def _derived(derive: Derivation, row: RecordRow) -> Value | None:
    """What derives from a time, with that time's interval, rounds and origin."""
    time = read_value(row, quantities()[derive.source])
    if time is None:
        return None

    def made(ms: float) -> float:
        return derive.value(row, ms)

    low, high = (0.0, math.inf) if time.high == math.inf else sorted((made(time.low), made(time.high)))
    processes = {number: made(ms) for number, ms in time.processes.items()}
    return replace(time, value=made(time.value), low=low, high=high, processes=processes)


# Intervals that are this many times apart are told apart even where other work disturbed the times, but by no number.
FAR = 5.0


def obstacle(first: Value, second: Value) -> str:
    """Why no verdict rests on the two; empty if one may."""
    if first.origin != second.origin:
        return f"one is {first.origin}, the other {second.origin}"
    if FAR * first.high < second.low or FAR * second.high < first.low:
        return ""
    return first.obstacle or second.obstacle


def ratio(first: Value, second: Value) -> Ratio | None:
    """The first time over the second, from the rounds that both have; None if these are fewer than three.

    Of two predicted times, the band has the sources of error in which the two differ.
    """
    if first.origin == second.origin == "predicted":
        return _predicted(first, second)
    rounds = sorted(first.processes.keys() & second.processes.keys())
    if len(rounds) < FEWEST_PROCESSES:
        return None
    logs = [math.log(first.processes[number] / second.processes[number]) for number in rounds]
    low, high, _ = t_interval(logs)
    return Ratio(math.exp(math.fsum(logs) / len(logs)), math.exp(low), math.exp(high))


def _predicted(first: Value, second: Value) -> Ratio:
    """The ratio of two predicted times; without the parts of their errors, as far as both bands allow."""
    if not (first.errors and second.errors):
        return Ratio(first.value / second.value, first.low / second.high, first.high / second.low)
    apart = [first.errors.get(source, 0.0) - second.errors.get(source, 0.0) for source in shared_sources(first, second)]
    factor = math.exp(CONFIDENCE_SDS * math.hypot(*apart, *(each.errors.get(KERNELS, 0.0) for each in (first, second))))
    value = first.value / second.value
    return Ratio(value, value / factor, value * factor)


def shared_sources(first: Value, second: Value) -> list[str]:
    """The sources of error that two predicted times may have in common: all but the scatter of their own kernels."""
    return [source for source in {**first.errors, **second.errors} if source != KERNELS]


def order(first: Value, second: Value) -> int:
    """-1 if the first is smaller, 1 if larger, 0 if they are equal, not told apart, or without a verdict.

    Times with fewer than three common rounds are told apart if their intervals do not overlap.
    """
    if obstacle(first, second):
        return 0
    found = ratio(first, second)
    below, above = (found.high < 1, found.low > 1) if found else (first.high < second.low, first.low > second.high)
    return int(above) - int(below)


def only_far(first: Value, second: Value) -> bool:
    """Whether two times that are told apart have no ratio to tell, since other work disturbed one."""
    return bool(first.obstacle or second.obstacle)


def ratio_text(first: Value, second: Value) -> str:
    """The first over the second: `1.60x [1.55, 1.66]` from rounds, else `1.60x`; `far` if no more is known."""
    if only_far(first, second):
        return "far"
    found = ratio(first, second)
    return str(found).replace(" ", "x ", 1) if found else times(first.value / second.value)


def times(value: float) -> str:
    """A ratio as it is read: 1.0003x, 1.02x, 4.1x, 37x; never 1.00x, since it is told of what differs."""
    if value < 2:
        decimals = next((d for d in range(2, 9) if round(value, d) != 1), 9)
        return f"{value:.{decimals}f}x"
    return f"{value:.1f}x" if value < 10 else f"{value:.0f}x"
