"""Who stands where: an order by one quantity, the Pareto front, and plain sentences about two modules.

Pure functions on standings. Counts are compared exactly; two latencies whose intervals overlap are about the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxbench.metrics import quantities, quantity

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Value:
    """A quantity and the interval around it: of no width for a count, of any width for a time without an interval."""

    value: float
    low: float
    high: float


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


def order(first: Value, second: Value) -> int:
    """-1 if the first is smaller, 1 if larger, 0 if they are equal or their intervals overlap."""
    if first.high < second.low:
        return -1
    return 1 if first.low > second.high else 0


def order_by(key: str, first: Standing, second: Standing) -> int:
    """-1 if the first is better in a quantity, 1 if worse, 0 if they are equal or their intervals overlap."""
    found = order(first.values[key], second.values[key])
    return -found if quantity(key).better == "larger" else found


def axes_of_front() -> list[str]:
    """The quantities that the Pareto front is made of."""
    return [key for key, quantity in quantities().items() if quantity.on_front]


def shared_axes(standings: Sequence[Standing]) -> list[str]:
    """The axes that every measured standing has: the ones that a front can be made of."""
    measured = [standing for standing in standings if standing.status == "ok"]
    return [axis for axis in axes_of_front() if measured and all(axis in standing.values for standing in measured)]


def dominates(first: Standing, second: Standing, axes: Sequence[str]) -> bool:
    """Whether the first is nowhere worse than the second and somewhere better."""
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
    found.append(f"On the Pareto front: {listed([standing.label for standing in front(standings, axes)])}.")
    candidates = [standing for standing in standings if standing.is_candidate]
    for number, candidate in enumerate(candidates):
        others = [one for one in standings if not one.is_candidate] + candidates[number + 1 :]
        found += [sentence(candidate, other, axes) for other in others]
    return found


def sentence(candidate: Standing, other: Standing, axes: Sequence[str]) -> str:
    """How the candidate stands to another module, in plain words."""
    for one in (candidate, other):
        if one.status != "ok":
            return f"{candidate.label} and {other.label} cannot be compared: {one.label} ended with {one.status}."
    orders = {axis: order_by(axis, candidate, other) for axis in axes}
    better = [axis for axis in axes if orders[axis] < 0]
    worse = [axis for axis in axes if orders[axis] > 0]
    same = [axis for axis in axes if orders[axis] == 0]
    count = NUMBERS[len(axes)]
    if not better and not worse:
        return f"{candidate.label} is not told apart from {other.label} on any of the {count}."
    if not better:
        if not same:
            return f"{candidate.label} is dominated by {other.label} on all {count}."
        return f"{candidate.label} is dominated by {other.label}: {_gains(other, candidate, worse)}{_also(same)}."
    gains = _gains(candidate, other, better)
    if not worse:
        if not same:
            return f"{candidate.label} dominates {other.label} on all {count}: {gains}."
        return f"{candidate.label} dominates {other.label}: {gains}{_also(same)}."
    return f"{candidate.label}: {gains} than {other.label}, for {_prices(candidate, other, worse)}{_also(same)}."


def times(value: float) -> str:
    """A ratio as it is read: 1.0003x, 1.02x, 4.1x, 37x; never 1.00x, since it is told of what differs."""
    if value < 2:
        decimals = next((d for d in range(2, 9) if round(value, d) != 1), 9)
        return f"{value:.{decimals}f}x"
    return f"{value:.1f}x" if value < 10 else f"{value:.0f}x"


def _gains(better: Standing, worse: Standing, axes: Sequence[str]) -> str:
    def gain(axis: str) -> str:
        what = quantity(axis)
        mine, theirs = better.values[axis].value, worse.values[axis].value
        if not min(mine, theirs):
            return f"no {what.noun}" if what.better == "smaller" else f"{what.comparative} {what.noun}"
        return f"{times(max(mine, theirs) / min(mine, theirs))} {what.comparative} {what.noun}"

    return listed([gain(axis) for axis in axes])


def _prices(worse: Standing, better: Standing, axes: Sequence[str]) -> str:
    def price(axis: str) -> str:
        noun = quantity(axis).noun
        mine, theirs = worse.values[axis].value, better.values[axis].value
        return f"{times(mine / theirs)} its {noun}" if theirs else f"{mine:,.0f} {noun} where it has none"

    return listed([price(axis) for axis in axes])


def _also(axes: Sequence[str]) -> str:
    return f"; about the same {listed([quantity(axis).noun for axis in axes])}" if axes else ""


def listed(phrases: Sequence[str]) -> str:
    """`a, b and c`."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
