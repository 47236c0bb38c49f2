"""Sentences that one block gains more than another, or refusals, and the agreement of settings in their order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from statistics import fmean

import numpy as np

from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number
from ctxbench.base.statistics import holm, p_value_above
from ctxbench_science.twins.gains import FEWEST_SETTINGS, Twins
from ctxbench_science.twins.records import PLAIN, Setting, records

# Of all orders of two blocks of a source that are told, this share may be wrong once (Holm).
LEVEL = 0.05

# With fewer pairs the interval is not known.
FEWEST = 4
_Z = 1.959964


class Refused(UsageError):
    """A claim that one block is better than another, which the published accuracies do not tell."""


@dataclass(frozen=True)
class Orders(Twins):
    """The blocks of one source, and which of two gains more."""

    def told_apart(self, first: str, second: str) -> bool:
        """Return whether the accuracies tell which of two blocks is better, among all pairs of the source."""
        return self.p_value(first, second) < LEVEL

    def p_value(self, first: str, second: str) -> float:
        """Holm's p value of two blocks, among all pairs of the source. UsageError where they are never twins."""
        self.values(first, second)
        return self._adjusted[frozenset((first, second))]

    def tied_pairs(self) -> tuple[int, int]:
        """The number of pairs of blocks that are not told apart, and of all pairs that are twins."""
        return sum(p >= LEVEL for p in self._adjusted.values()), len(self._adjusted)

    @cached_property
    def _adjusted(self) -> Mapping[frozenset[str], float]:
        """Holm's p value of each pair of blocks that are twins."""
        found = {}
        for first, second in combinations(self.blocks, 2):
            if values := [*self.differences(first, second).values()]:
                found[frozenset((first, second))] = self._p_value(values, self.error(first, second))
        return dict(zip(found, map(float, holm([*found.values()])), strict=True))

    def _p_value(self, values: list[float], error: float) -> float:
        """The two-sided p value of a mean difference: by its `error` from noise, or Student's where that is larger."""
        count, distance = len(values), abs(fmean(values))
        found = p_value_above(distance, error, self.noise.freedom + 1)
        if count >= FEWEST_SETTINGS:
            found = max(found, p_value_above(distance, float(np.std(values, ddof=1)) / math.sqrt(count), count))
        return 2 * found

    def claim(self, better: str, worse: str) -> str:
        """The sentence that one block is better than another. Refused, an error, where that is not told."""
        found = self.difference(better, worse)
        settings = len(self.differences(better, worse))
        points = f"{self.source.measure} {found.text(decimals=2, sign='+')} points"
        about = f"{points} over {settings} setting{'s' * (settings > 1)}"
        if not self.told_apart(better, worse):
            p, (_, pairs) = self.p_value(better, worse), self.tied_pairs()
            raise Refused(
                f"the records do not tell that {better} is better than {worse}: {about} "
                f"(p = {p:.2f} among {pairs} pairs)"
            )
        if found.value < 0:
            raise Refused(f"{better} is not better than {worse}: {about}")
        return f"{better} is better than {worse}: {about}."


@cache
def orders(name: str) -> Orders:
    """The orders of a source, one of `records.NAMES`."""
    return Orders(records(name))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> Number:
    """Spearman's rank correlation with its 95 % interval by Fisher's transformation.

    The standard error is that of Bonett and Wright (Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations, Psychometrika 2000). ValueError for fewer than FEWEST pairs, and for equal values alone.
    """
    from scipy.stats import spearmanr

    if len(first) != len(second) or len(first) < FEWEST:
        raise ValueError(f"a rank correlation needs {FEWEST} or more pairs, not {len(first)} and {len(second)} values")
    if len({*first}) == 1 or len({*second}) == 1:
        raise ValueError("values that are all equal have no order")
    value = float(spearmanr(first, second)[0])
    if abs(value) > 1 - 1e-12:
        return Number(value, origin="published")
    reach = _Z * math.sqrt((1 + value**2 / 2) / (len(first) - 3))
    ends = (math.tanh(math.atanh(value) + sign * reach) for sign in (-1, 1))
    return Number(value, *ends, origin="published")


def agreement(source: Twins, one: Setting, other: Setting) -> tuple[Number, int]:
    """Rank correlation of the gains in two settings over the blocks that both have, and how many these are."""
    gains = {block: source.differences(block, PLAIN) for block in source.blocks if block != PLAIN}
    shared = [own for own in gains.values() if one in own and other in own]
    return rank_correlation([own[one] for own in shared], [own[other] for own in shared]), len(shared)
