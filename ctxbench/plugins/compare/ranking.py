"""Ranking of modules: an order by one quantity, the Pareto front, and plain sentences about two modules."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxbench.base.number import Number, order, order_without_ratio, ratio, reason_not_comparable, times
from ctxbench.base.texts import counted, listed
from ctxbench.model.metrics import quantities, quantity

FRONT = "On the Pareto front"
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


# More pairs than this have no sentence each; names in a sentence, and sentences on hyper-parameters with the front's.
MOST_PAIRS, MOST_NAMES, MOST_SENTENCES = 12, 6, 5


@dataclass(frozen=True)
class Standing:
    """One row: its label, whether it is a candidate, its quantities by key; `status` says why there are none.

    `settings` are the hyper-parameters in which rows of its `module` differ, `name` is the label without them. `notes`
    are sentences on its quantities, by key; `marks` stand beside the label in the table: `local: 7 x 7`. `place` tells
    the rows of several places of a network apart.
    """

    label: str
    is_candidate: bool
    values: Mapping[str, Number]
    status: str = "ok"
    message: str = ""
    module: str = ""
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    marks: str = ""
    place: str = ""


@dataclass(frozen=True)
class Ranking:
    """The rows of one input and condition, candidates first; `memory` says how their memory was obtained.

    `others` are the same rows by other executions, whose times stand beside those of eager. At a place of a network
    (`is_place`), memory is shown for both modes; the rows of several places are in one ranking, each with its `place`.
    """

    condition: str
    memory: str
    standings: Sequence[Standing]
    others: Mapping[str, Sequence[Standing]] = field(default_factory=dict)
    is_place: bool = False

    @property
    def settings(self) -> list[str]:
        """The hyper-parameters in which rows of one module differ."""
        return list(dict.fromkeys(name for standing in self.standings for name in standing.settings))


def by_place(standings: Sequence[Standing]) -> dict[str, list[Standing]]:
    """The rows of each place, in which alone rows are rivals; all by "" where no row has one."""
    found: dict[str, list[Standing]] = {}
    for standing in standings:
        found.setdefault(standing.place, []).append(standing)
    return found


def order_by(key: str, first: Standing, second: Standing) -> int:
    """-1 if the first is better in a quantity, 1 if worse, else 0 (see `order`)."""
    found = order(first.values[key], second.values[key])
    return -found if quantity(key).better == "larger" else found


def axes_of_front(standings: Sequence[Standing]) -> list[str]:
    """The quantities that the Pareto front is made of, as far as any standing has them."""
    known = {key for standing in standings for key in standing.values}
    return [key for key, quantity in quantities().items() if quantity.on_front and key in known]


def shared_axes(standings: Sequence[Standing]) -> list[str]:
    """The axes that every measured standing has: the ones that a front can be made of."""
    measured = [standing for standing in standings if standing.status == "ok"]
    return [
        axis for axis in axes_of_front(standings) if measured and all(axis in standing.values for standing in measured)
    ]


def settled_axes(standings: Sequence[Standing]) -> list[str]:
    """The shared axes in which a verdict is possible for each row; where there is none, all shared ones."""
    axes = shared_axes(standings)
    return [axis for axis in axes if not _unsettled(standings, axis)] or axes


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
    """By a quantity, the best first; then those whose number does not include all, those without one, failed ones."""
    sign = -1 if quantity(key).better == "larger" else 1

    def place(standing: Standing) -> tuple[bool, bool, bool, float]:
        known = standing.values.get(key)
        is_bound = known is not None and bool(known.lacks)
        return standing.status != "ok", known is None, is_bound, sign * known.value if known else 0.0

    return sorted(standings, key=place)


def sentences(standings: Sequence[Standing]) -> list[str]:
    """The front, then each candidate beside every other row, or what each of its hyper-parameters costs.

    Of many pairs, a sentence for each candidate; of several places, their fronts alone.
    """
    places = by_place(standings)
    if len(places) > 1:
        return [f"{place}: {text}" for place, own in places.items() for text in _front_sentences(own, shared_axes(own))]
    axes = shared_axes(standings)
    found = _front_sentences(standings, axes)
    if not axes:
        return found
    settled = settled_axes(standings)
    if any(standing.settings for standing in standings):
        return [*found, *settings_sentences(standings, MOST_SENTENCES - len(found))]
    candidates = [standing for standing in standings if standing.is_candidate]
    if len(candidates) * (len(standings) - (len(candidates) + 1) / 2) > MOST_PAIRS:
        return [*found, *(_summary(candidate, standings, settled) for candidate in candidates)]
    for number, candidate in enumerate(candidates):
        others = [one for one in standings if not one.is_candidate] + candidates[number + 1 :]
        own = {
            axis: value.reason_not_comparable
            for axis, value in candidate.values.items()
            if axis in axes and value.reason_not_comparable
        }
        for axis, why in own.items():
            noun = quantity(axis).noun
            limit = (
                f"{noun} is not compared"
                if candidate.values[axis].lacks
                else f"{noun} is ranked only where it differs clearly"
            )
            found.append(f"{candidate.label}: {limit}: {why}.")
        for other in others:
            told = _told(candidate, other, axes, own)
            found.append(sentence(candidate, other, told, is_whole=len(told) == len(axes)))
    return found


def _front_sentences(standings: Sequence[Standing], axes: Sequence[str]) -> list[str]:
    """Sentences on what is not compared, if anything, and on the front of these rivals, if there is an axis."""
    left_out = [quantity(axis).noun for axis in axes_of_front(standings) if axis not in axes]
    found = [f"Not compared, since not every row has it: {listed(left_out)}."] if left_out else []
    if not axes:
        return found
    settled = settled_axes(standings)
    is_part = any(_unsettled(standings, axis) for axis in axes)
    where = f"On the Pareto front of {listed([quantity(axis).noun for axis in settled])}" if is_part else FRONT
    return [*found, f"{where}: {_named(front(standings, settled))}."]


def _named(standings: Sequence[Standing]) -> str:
    """The labels, of many the first ones."""
    return listed([each.label for each in standings], MOST_NAMES)


def _summary(candidate: Standing, standings: Sequence[Standing], axes: Sequence[str]) -> str:
    """The rows that a candidate dominates, those that dominate it, and how many do neither, in a sentence."""
    if candidate.status != "ok":
        return f"{candidate.label} ended with {candidate.status}."
    others = [each for each in standings if each is not candidate and each.status == "ok"]
    below = [each for each in others if dominates(candidate, each, axes)]
    above = [each for each in others if dominates(each, candidate, axes)]
    rest = len(others) - len(below) - len(above)
    parts = [f"{verb} {_named(rows)}" for verb, rows in (("dominates", below), ("is dominated by", above)) if rows]
    parts += [f"neither holds for {counted(rest, 'other row')}"] * bool(rest)
    return f"{candidate.label} in {listed([quantity(axis).noun for axis in axes])}: {'; '.join(parts)}."


def _unsettled(standings: Sequence[Standing], axis: str) -> str:
    """Reason against a verdict from a quantity of some row; empty if there is none."""
    return next((why for row in standings if row.status == "ok" if (why := row.values[axis].doubt)), "")


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


def sentence(candidate: Standing, other: Standing, axes: Sequence[str], is_whole: bool = True) -> str:
    """Comparison of the candidate with another module, in a sentence.

    Unless these axes are the whole of what is compared, neither of the two dominates the other.
    """
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
        if unclear or not is_whole:
            return f"{candidate.label} and {other.label}: {rest.removeprefix('; ')}."
        return f"{candidate.label} is statistically tied with {other.label} on all {count}."
    if better and worse:
        gains, prices = _gains(candidate, other, better), _prices(candidate, other, worse)
        return f"{candidate.label}: {gains} than {other.label}, for {prices}{rest}."
    first, second = (candidate, other) if better else (other, candidate)
    gains = _gains(first, second, better or worse)
    if unclear or not is_whole:
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
    return text + (f"; no clear difference in {listed(alike)}" if alike else "")


def settings_sentences(standings: Sequence[Standing], most: int) -> list[str]:
    """The costs of each hyper-parameter: its last value beside its first one, all others alike; so many at most."""
    found = []
    for module in dict.fromkeys(each.module for each in standings if each.settings):
        rows = [each for each in standings if each.module == module and each.status == "ok"]
        found += [text for name in rows[0].settings if (text := _cost_of(name, rows))] if rows else []
    if len(found) > most:
        found = [*found[: most - 1], f"The table has what {len(found) - most + 1} more hyper-parameters cost."]
    return found


def _cost_of(name: str, rows: Sequence[Standing]) -> str:
    """The cost of one hyper-parameter among rows of a module; empty where no two rows differ in it alone."""
    alike: dict[str, list[Standing]] = {}
    for row in rows:
        alike.setdefault(repr([value for key, value in row.settings.items() if key != name]), []).append(row)
    ends = [_ends(own, name) for own in alike.values()]
    spans = Counter((first.settings[name], last.settings[name]) for first, last in ends if first is not last)
    if not spans:
        return ""
    before, after = max(spans, key=spans.__getitem__)
    ends = [(first, last) for first, last in ends if (first.settings[name], last.settings[name]) == (before, after)]
    texts = [_axis_cost(axis, ends) for axis in axes_of_front(rows)]
    found = [
        start + listed([noun for kind, noun in texts if kind == each])
        for each, start in (("changed", ""), ("same", "the same "), ("alike", "no clear difference in "))
        if any(kind == each for kind, _ in texts)
    ]
    found += [text for kind, text in texts if kind == "unclear"]
    others = listed([key for key in rows[0].settings if key != name])
    where = f" at each of {len(ends)} settings of {others}" if len(ends) > 1 else ""
    return f"{rows[0].name}, {name}={after} over {name}={before}{where}: {'; '.join(found)}."


def _axis_cost(axis: str, ends: Sequence[tuple[Standing, Standing]]) -> tuple[str, str]:
    """Difference of a quantity between the rows of pairs, "changed", "same", "alike" or "unclear", and its words."""
    noun = quantity(axis).noun
    pairs = [
        (last.values[axis], first.values[axis])
        for first, last in ends
        if {axis} <= last.values.keys() & first.values.keys()
    ]
    if not pairs or not all(first.value for _, first in pairs):
        return "unclear", f"{noun} cannot be compared: it is missing or 0"
    if why := next((each.reason_not_comparable for pair in pairs for each in pair if each.reason_not_comparable), ""):
        return "unclear", f"{noun} cannot be compared: {why}"
    if all(order(*pair) == 0 for pair in pairs):
        return "alike" if quantity(axis).has_interval else "same", noun
    return "changed", f"{_range(pairs)} the {noun}"


def _ends(rows: Sequence[Standing], name: str) -> tuple[Standing, Standing]:
    """The rows with the first and the last value of a hyper-parameter: of numbers the smallest and the largest."""
    values = [row.settings[name] for row in rows]
    if all(isinstance(value, int | float) for value in values):
        rows = sorted(rows, key=lambda row: float(row.settings[name]))
    return rows[0], rows[-1]


def _range(pairs: Sequence[tuple[Number, Number]]) -> str:
    """Ratios of pairs: that of one with its interval, of several the smallest and the largest."""
    texts = {times(*pair) for pair in pairs}
    if len(texts) == 1:
        return texts.pop()
    found = sorted((ratio(*pair) for pair in pairs), key=lambda each: each.value)
    return " to ".join(f"{each.texts()[0]}x" for each in (found[0], found[-1]))
