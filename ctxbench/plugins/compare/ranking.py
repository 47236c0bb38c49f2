"""Ranking of modules: an order by one quantity, the Pareto front, and plain sentences about two modules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxbench.base.number import Number, order, order_without_ratio, reason_not_comparable, times
from ctxbench.base.texts import listed
from ctxbench.model.metrics import metrics, quantities, quantity

FRONT = "On the Pareto front"
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Standing:
    """One row: its label, whether it is a candidate, its quantities by key; `status` says why there are none."""

    label: str
    is_candidate: bool
    values: Mapping[str, Number]
    status: str = "ok"
    message: str = ""


@dataclass(frozen=True)
class Ranking:
    """The rows of one input and condition, candidates first; `memory` says how their memory was obtained."""

    condition: str
    memory: str
    standings: Sequence[Standing]


def order_by(key: str, first: Standing, second: Standing) -> int:
    """-1 if the first is better in a quantity, 1 if worse, else 0 (see `order`)."""
    found = order(first.values[key], second.values[key])
    return -found if quantity(key).better == "larger" else found


def axes_of_front(standings: Sequence[Standing]) -> list[str]:
    """The quantities that the Pareto front is made of: what is measured by default, and what any standing has."""
    usual = {each.key for metric in metrics().values() if metric.default for each in metric.quantities}
    known = usual.union(*(standing.values for standing in standings))
    return [key for key, quantity in quantities().items() if quantity.on_front and key in known]


def shared_axes(standings: Sequence[Standing]) -> list[str]:
    """The axes that every measured standing has: the ones that a front can be made of."""
    measured = [standing for standing in standings if standing.status == "ok"]
    return [
        axis for axis in axes_of_front(standings) if measured and all(axis in standing.values for standing in measured)
    ]


def dominates(first: Standing, second: Standing, axes: Sequence[str]) -> bool:
    """True if the first is nowhere worse than the second and somewhere better; not where a verdict is missing."""
    if any(reason_not_comparable(first.values[axis], second.values[axis]) for axis in axes):
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
    left_out = [quantity(axis).noun for axis in axes_of_front(standings) if axis not in axes]
    found = [f"Not compared, since not every row has it: {listed(left_out)}."] if left_out else []
    if not axes:
        return found
    unsettled = {axis: why for axis in axes if (why := _unsettled(standings, axis))}
    settled = [axis for axis in axes if axis not in unsettled] or axes
    where = f"On the Pareto front of {listed([quantity(axis).noun for axis in settled])}" if unsettled else FRONT
    found.append(f"{where}: {listed([standing.label for standing in front(standings, settled)])}.")
    candidates = [standing for standing in standings if standing.is_candidate]
    for number, candidate in enumerate(candidates):
        others = [one for one in standings if not one.is_candidate] + candidates[number + 1 :]
        own = {
            axis: value.reason_not_comparable
            for axis, value in candidate.values.items()
            if axis in axes and value.reason_not_comparable
        }
        for axis, why in own.items():
            found.append(f"{candidate.label}: {quantity(axis).noun} is told apart only where it is far off: {why}.")
        found += [sentence(candidate, other, _told(candidate, other, axes, own)) for other in others]
    return found


def _unsettled(standings: Sequence[Standing], axis: str) -> str:
    """Reason against a verdict from a quantity of some row; empty if there is none."""
    return next((why for row in standings if row.status == "ok" if (why := row.values[axis].reason_not_comparable)), "")


def _told(candidate: Standing, other: Standing, axes: Sequence[str], own: Mapping[str, str]) -> list[str]:
    """The axes of which a sentence about the two says something: without those that only the candidate obscures."""
    if other.status != "ok":
        return list(axes)
    kept = [
        axis
        for axis in axes
        if axis not in own or not reason_not_comparable(candidate.values[axis], other.values[axis])
    ]
    return kept or list(axes)


def sentence(candidate: Standing, other: Standing, axes: Sequence[str]) -> str:
    """Comparison of the candidate with another module, in a sentence."""
    reasons = [f"{one.label} ended with {one.status}" for one in (candidate, other) if one.status != "ok"]
    against = (
        {} if reasons else {axis: reason_not_comparable(candidate.values[axis], other.values[axis]) for axis in axes}
    )
    orders = {axis: order_by(axis, candidate, other) for axis, reason in against.items() if not reason}
    if not orders:
        return f"{candidate.label} and {other.label} cannot be compared: {[*reasons, *against.values()][0]}."
    better = [axis for axis in orders if orders[axis] < 0]
    worse = [axis for axis in orders if orders[axis] > 0]
    same = [axis for axis in orders if orders[axis] == 0]
    unclear = "".join(f"; {quantity(a).noun} cannot be compared: {why}" for a, why in against.items() if why)
    count, rest = NUMBERS[len(orders)], f"{_also(same)}{unclear}"
    if not better and not worse:
        if unclear:
            return f"{candidate.label} and {other.label}: {rest.removeprefix('; ')}."
        return f"{candidate.label} is statistically tied with {other.label} on each of the {count}."
    if better and worse:
        gains, prices = _gains(candidate, other, better), _prices(candidate, other, worse)
        return f"{candidate.label}: {gains} than {other.label}, for {prices}{rest}."
    first, second = (candidate, other) if better else (other, candidate)
    gains = _gains(first, second, better or worse)
    if unclear:
        return f"{first.label}: {gains} than {second.label}{rest}."
    on_all = "" if same or len(orders) == 1 else " on both" if len(orders) == 2 else f" on all {count}"
    if worse:
        return f"{candidate.label} is dominated by {other.label}{on_all or f': {gains}{rest}'}."
    return f"{candidate.label} dominates {other.label}{on_all}: {gains}{rest}."


def _gains(better: Standing, worse: Standing, axes: Sequence[str]) -> str:
    def gain(axis: str) -> str:
        what = quantity(axis)
        less, more = better.values[axis], worse.values[axis]
        if what.better == "larger":
            less, more = more, less
        if not less.value:
            return f"no {what.noun}" if what.better == "smaller" else f"{what.comparative} {what.noun}"
        return f"{times(more, less)} {what.comparative} {what.noun}"

    return listed([gain(axis) for axis in axes])


def _prices(worse: Standing, better: Standing, axes: Sequence[str]) -> str:
    def price(axis: str) -> str:
        noun = quantity(axis).noun
        mine, theirs = worse.values[axis], better.values[axis]
        if order_without_ratio(mine, theirs):
            return f"far more {noun}" if quantity(axis).better == "smaller" else f"far less {noun}"
        return f"{times(mine, theirs)} its {noun}" if theirs.value else f"{mine.value:,.0f} {noun} where it has none"

    return listed([price(axis) for axis in axes])


def _also(axes: Sequence[str]) -> str:
    """Common costs of two rows: counts are equal, times are not told apart."""
    equal = [quantity(axis).noun for axis in axes if not quantity(axis).has_interval]
    alike = [quantity(axis).noun for axis in axes if quantity(axis).has_interval]
    text = f"; the same {listed(equal)}" if equal else ""
    return text + (f"; about the same {listed(alike)}" if alike else "")
