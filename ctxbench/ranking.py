"""Who stands where: an order by one quantity, the Pareto front, and plain sentences about two modules.

Counts are compared exactly. Two times of one run are compared round by round: each round gives the ratio of two
processes that are neighbours in time, and Student's interval of the mean log ratio decides.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxbench import machine_load
from ctxbench.metrics import quantities, quantity
from ctxbench.metrics.base import Quantity, RecordRow
from ctxbench.statistics import FEWEST_PROCESSES, t_interval

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# A ratio has no more decimals.
MOST_DECIMALS = 9


@dataclass(frozen=True)
class Value:
    """A quantity and the interval around it: of no width for a count, of any width for a time without an interval.

    Of a time, `processes` holds the median of each process by its round, and `others_share` which share of the
    cores other work kept busy meanwhile.
    """

    value: float
    low: float
    high: float
    processes: Mapping[int, float] = field(default_factory=dict)
    others_share: float | None = None

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
    """A ratio of two times and its 95 % interval over rounds."""

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


@dataclass(frozen=True)
class Standing:
    """One row: its label, whether it is a candidate, its quantities by key; `status` says why there are none."""

    label: str
    is_candidate: bool
    values: Mapping[str, Value]
    status: str = "ok"
    message: str = ""


@dataclass(frozen=True)
class Ranking:
    """The rows of one input and condition, candidates first; `memory` says how their memory was obtained."""

    condition: str
    memory: str
    standings: Sequence[Standing]


def exactly(value: float) -> Value:
    return Value(value, value, value)


def read_value(row: RecordRow, quantity: Quantity, column: str = "") -> Value | None:
    """A quantity of a record, from `column` if it is given; None if it is not known."""
    value = known(row, column or quantity.column)
    if value is None or not quantity.has_interval:
        return None if value is None else exactly(value)
    low, high = (known(row, quantity.detail(end)) for end in ("low_ms", "high_ms"))
    if low is None or high is None:
        low, high = 0.0, math.inf
    processes = read_processes(known(row, quantity.detail("process_ms")) or "{}")
    others = known(row, "others_share")
    return Value(value, low, high, processes, others)


def read_processes(text: str) -> dict[int, float]:
    """The medians of processes by round from their column; ValueError if it holds anything else."""
    found = {int(number): float(ms) for number, ms in dict(json.loads(text)).items()}
    if not all(0 < ms < math.inf for ms in found.values()):
        raise ValueError("the median of a process is a positive number")
    return found


def known(row: RecordRow, column: str) -> Any:
    """The value of a column; None if it is not known."""
    import pandas as pd

    return None if pd.isna(row[column]) else row[column]


def without_reused(frame: "pd.DataFrame", meta: Mapping[str, Any]) -> "pd.DataFrame":
    """A run's records without the process medians of reused rows: their rounds are not those of the other rows."""
    reused = frame["case"].isin((meta.get("reused") or {}).get("cases", ()))
    columns = [each.detail("process_ms") for each in quantities().values() if each.has_interval]
    frame.loc[reused, columns] = ""
    return frame


def ratio(first: Value, second: Value) -> Ratio | None:
    """The first time over the second, from the rounds that both have; None if these are fewer than three."""
    rounds = sorted(first.processes.keys() & second.processes.keys())
    if len(rounds) < FEWEST_PROCESSES:
        return None
    logs = [math.log(first.processes[number] / second.processes[number]) for number in rounds]
    low, high, _ = t_interval(logs)
    return Ratio(math.exp(math.fsum(logs) / len(logs)), math.exp(low), math.exp(high))


def order(first: Value, second: Value) -> int:
    """-1 if the first is smaller, 1 if larger, 0 if they are equal, not told apart, or without a verdict.

    Times with fewer than three common rounds are told apart if their intervals do not overlap.
    """
    if first.obstacle or second.obstacle:
        return 0
    found = ratio(first, second)
    below, above = (found.high < 1, found.low > 1) if found else (first.high < second.low, first.low > second.high)
    return int(above) - int(below)


def order_by(key: str, first: Standing, second: Standing) -> int:
    """-1 if the first is better in a quantity, 1 if worse, else 0 (see `order`)."""
    found = order(first.values[key], second.values[key])
    return -found if quantity(key).better == "larger" else found


def obstacle(key: str, first: Standing, second: Standing) -> str:
    """Why two rows cannot be compared in a quantity; empty if they can."""
    return first.values[key].obstacle or second.values[key].obstacle


def axes_of_front() -> list[str]:
    """The quantities that the Pareto front is made of."""
    return [key for key, quantity in quantities().items() if quantity.on_front]


def shared_axes(standings: Sequence[Standing]) -> list[str]:
    """The axes that every measured standing has: the ones that a front can be made of."""
    measured = [standing for standing in standings if standing.status == "ok"]
    return [axis for axis in axes_of_front() if measured and all(axis in standing.values for standing in measured)]


def dominates(first: Standing, second: Standing, axes: Sequence[str]) -> bool:
    """Whether the first is nowhere worse than the second and somewhere better; not where a verdict is missing."""
    if any(obstacle(axis, first, second) for axis in axes):
        return False
    orders = [order_by(axis, first, second) for axis in axes]
    return -1 in orders and 1 not in orders


def front(standings: Sequence[Standing], axes: Sequence[str]) -> list[Standing]:
    """The Pareto front: the measured standings that no other dominates."""
    measured = [standing for standing in standings if standing.status == "ok"]
    return [one for one in measured if not any(dominates(other, one, axes) for other in measured)]


def ranked(standings: Sequence[Standing], key: str) -> list[Standing]:
    """By a quantity, the best first; those without it, and failed ones, at the end in their own order."""
    sign = -1 if quantity(key).better == "larger" else 1

    def place(standing: Standing) -> tuple[bool, bool, float]:
        known = standing.values.get(key)
        return standing.status != "ok", known is None, sign * known.value if known else 0.0

    return sorted(standings, key=place)


def sentences(standings: Sequence[Standing]) -> list[str]:
    """The front, then each candidate beside every other row."""
    axes = shared_axes(standings)
    left_out = [quantity(axis).noun for axis in axes_of_front() if axis not in axes]
    found = [f"Not compared, since not every row has it: {listed(left_out)}."] if left_out else []
    if not axes:
        return found
    unsettled = any(row.values[axis].obstacle for row in standings if row.status == "ok" for axis in axes)
    where = "On the Pareto front, as far as can be told" if unsettled else "On the Pareto front"
    found.append(f"{where}: {listed([standing.label for standing in front(standings, axes)])}.")
    candidates = [standing for standing in standings if standing.is_candidate]
    for number, candidate in enumerate(candidates):
        others = [one for one in standings if not one.is_candidate] + candidates[number + 1 :]
        found += [sentence(candidate, other, axes) for other in others]
    return found


def sentence(candidate: Standing, other: Standing, axes: Sequence[str]) -> str:
    """How the candidate stands to another module, in plain words."""
    reasons = [f"{one.label} ended with {one.status}" for one in (candidate, other) if one.status != "ok"]
    obstacles = {} if reasons else {axis: obstacle(axis, candidate, other) for axis in axes}
    orders = {axis: order_by(axis, candidate, other) for axis, reason in obstacles.items() if not reason}
    if not orders:
        return f"{candidate.label} and {other.label} cannot be compared: {[*reasons, *obstacles.values()][0]}."
    better = [axis for axis in orders if orders[axis] < 0]
    worse = [axis for axis in orders if orders[axis] > 0]
    same = [axis for axis in orders if orders[axis] == 0]
    unclear = "".join(f"; {quantity(a).noun} cannot be compared: {why}" for a, why in obstacles.items() if why)
    count, rest = NUMBERS[len(orders)], f"{_also(same)}{unclear}"
    if not better and not worse:
        if unclear:
            return f"{candidate.label} and {other.label}: {rest.removeprefix('; ')}."
        return f"{candidate.label} is not told apart from {other.label} on any of the {count}."
    if better and worse:
        gains, prices = _gains(candidate, other, better), _prices(candidate, other, worse)
        return f"{candidate.label}: {gains} than {other.label}, for {prices}{rest}."
    first, second = (candidate, other) if better else (other, candidate)
    gains = _gains(first, second, better or worse)
    if unclear:
        return f"{first.label}: {gains} than {second.label}{rest}."
    on_all = "" if same else f" on all {count}"
    if worse:
        return f"{candidate.label} is dominated by {other.label}{on_all or f': {gains}{rest}'}."
    return f"{candidate.label} dominates {other.label}{on_all}: {gains}{rest}."


def ratio_text(first: Value, second: Value) -> str:
    """The first over the second: `1.60x [1.55, 1.66]` from rounds, else `1.60x`."""
    found = ratio(first, second)
    return str(found).replace(" ", "x ", 1) if found else times(first.value / second.value)


def times(value: float) -> str:
    """A ratio as it is read: 1.0003x, 1.02x, 4.1x, 37x; never 1.00x, since it is told of what differs."""
    if value < 2:
        decimals = next((d for d in range(2, 9) if round(value, d) != 1), 9)
        return f"{value:.{decimals}f}x"
    return f"{value:.1f}x" if value < 10 else f"{value:.0f}x"


def _gains(better: Standing, worse: Standing, axes: Sequence[str]) -> str:
    def gain(axis: str) -> str:
        what = quantity(axis)
        less, more = better.values[axis], worse.values[axis]
        if what.better == "larger":
            less, more = more, less
        if not less.value:
            return f"no {what.noun}" if what.better == "smaller" else f"{what.comparative} {what.noun}"
        return f"{ratio_text(more, less)} {what.comparative} {what.noun}"

    return listed([gain(axis) for axis in axes])


def _prices(worse: Standing, better: Standing, axes: Sequence[str]) -> str:
    def price(axis: str) -> str:
        noun = quantity(axis).noun
        mine, theirs = worse.values[axis], better.values[axis]
        return (
            f"{ratio_text(mine, theirs)} its {noun}" if theirs.value else f"{mine.value:,.0f} {noun} where it has none"
        )

    return listed([price(axis) for axis in axes])


def _also(axes: Sequence[str]) -> str:
    """What is the same of two rows: counts are equal, times are not told apart."""
    equal = [quantity(axis).noun for axis in axes if not quantity(axis).has_interval]
    alike = [quantity(axis).noun for axis in axes if quantity(axis).has_interval]
    text = f"; the same {listed(equal)}" if equal else ""
    return text + (f"; about the same {listed(alike)}" if alike else "")


def listed(phrases: Sequence[str]) -> str:
    """`a, b and c`."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
