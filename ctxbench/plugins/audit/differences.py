"""Finds figures that break the differences which all others of a table keep, and those that were exchanged."""

import itertools
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from statistics import median

from ctxbench.base.number import fixed
from ctxbench.model.conditions import Shape
from ctxbench.model.published import Printed
from ctxbench.plugins.audit.recounted import Keep, RecountedTable

# A difference is judged by so many others at least.
FEWEST = 4
# A difference is odd that is so many median deviations of the others away from their median, and two printed steps.
DEVIATIONS = 3
# The names of two rows that differ in one key alone.
RowPair = tuple[str, str]
FractionsByKey = Mapping[str, Fraction]


def broken(table: RecountedTable) -> dict[tuple[str, str], str]:
    """By row and quantity: why the figure cannot be beside the others, as the table's `keeps` say."""
    found: dict[tuple[str, str], str] = {}
    for keep in table.keeps:
        found |= {(name, keep.quantity): why for name, why in _Differences(table, keep).reasons().items()}
    return found


class _Differences:
    """The pairs of rows that a `keep` is about, in groups that should have one difference."""

    def __init__(self, table: RecountedTable, keep: Keep) -> None:
        self._why, self._unit = keep.why, table.unit(keep.quantity)
        rows = {name: row for name, row in table.rows.items() if keep.quantity in row.printed}
        printed = {name: Printed.parse(row.printed[keep.quantity]) for name, row in rows.items()}
        self._values = {name: each.value * each.factor(self._unit) for name, each in printed.items()}
        self._step = max((each.step * each.factor(self._unit) for each in printed.values()), default=Fraction(0))
        self._decimals = {name: each.decimals for name, each in printed.items()}
        alike: dict[tuple[str, str, Shape | None], dict[str, str]] = defaultdict(dict)
        for name, row in rows.items():
            key = (row.block if keep.differing == "network" else row.network, str(row.settings), table.shape_of(name))
            alike[key].setdefault(getattr(row, keep.differing), name)
        order = [*dict.fromkeys(getattr(row, keep.differing) for row in rows.values())]
        self._groups: dict[tuple[str, str, Shape | None], list[RowPair]] = defaultdict(list)
        for (_, _, shape), members in alike.items():
            for (first, a), (second, b) in itertools.combinations(
                sorted(members.items(), key=lambda each: order.index(each[0])), 2
            ):
                if not keep.pairs or {first, second} in map(set, keep.pairs):
                    self._groups[first, second, shape].append((a, b))

    def reasons(self) -> dict[str, str]:
        """By row: what its figure breaks; of two figures, if it was exchanged, with which."""
        odd = self._odd(self._values)
        found = {name: f"{said}; one of the two cannot be. {self._why}" for pair, said in odd.items() for name in pair}
        tried = [(one, two, a, b) for one, two in itertools.combinations(odd, 2) for a in one for b in two]
        mended = [each for each in tried if self._odd(self._exchanged(*each[2:])).keys() == odd.keys() - {*each[:2]}]
        for one, two, a, b in mended:
            if sum(bool({one, two} & {*each[:2]}) for each in mended) == 1:
                found |= dict.fromkeys((*one, *two), "")
                for pair, name, other in ((one, a, b), (two, b, a)):
                    end = f"exchanged with {other}, both keep it ({len(tried)} exchanges tried)"
                    found[name] = f"{odd[pair]}; {end}. {self._why}"
        return {name: why for name, why in found.items() if why}

    def _exchanged(self, first: str, second: str) -> FractionsByKey:
        return {**self._values, first: self._values[second], second: self._values[first]}

    def _odd(self, values: FractionsByKey) -> dict[RowPair, str]:
        """The pairs whose difference is not that of the others of its group, with both in a sentence."""
        found: dict[RowPair, str] = {}
        for pairs in self._groups.values():
            differences = {pair: values[pair[1]] - values[pair[0]] for pair in pairs}
            odd = {pair for pair in pairs if self._is_odd(pair, differences)}
            kept = [difference for pair, difference in differences.items() if pair not in odd]
            for pair in odd if len(kept) >= FEWEST else ():
                places = max(self._decimals[name] for name in pair)
                own, *ends = (
                    fixed(float(each / self._unit.factor), places) for each in (differences[pair], min(kept), max(kept))
                )
                said = f"all {len(kept)} other such pairs {' to '.join(ends)}"
                found[pair] = f"{pair[1]} less {pair[0]} is {own}, {said}"
        return found

    def _is_odd(self, pair: RowPair, differences: Mapping[RowPair, Fraction]) -> bool:
        others = [difference for each, difference in differences.items() if each != pair]
        if len(others) < FEWEST:
            return False
        middle = median(others)
        spread = median(abs(each - middle) for each in others)
        return abs(differences[pair] - middle) > DEVIATIONS * spread + 2 * self._step
