"""From which n = H W on one module is cheaper than another: where the ratio of their costs falls below 1.

Between two sizes that were run, a cost is taken to follow the power law through them. Of times, each round has its own
power laws, so the ratio of two times has an interval over rounds between the sizes, too, and the limits of the
crossover are where the limits of that interval pass 1 (Fieller, Some problems in interval estimation, 1954). So are
those of predicted times, with the band of their ratio. Nothing is said beyond the smallest and the largest size.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ctxbench.base.number import Number, ratio


@dataclass(frozen=True)
class CostsAtSize:
    """A cost of two modules at n positions; both costs are above 0."""

    n: int
    first: Number
    second: Number


@dataclass(frozen=True)
class Crossover:
    """The smallest n above which the first module is cheaper at every larger size.

    0 stands for less than the smallest size: the first is cheaper at every size. Infinity stands for more than the
    largest: it is not cheaper there. The value is NaN where the two are equal, or not told apart, at every size.
    `signs` says of each size whether the first is cheaper (-1) or costs more (1); 0: equal, or not told apart.
    """

    n: Number
    signs: tuple[int, ...]

    @property
    def is_single(self) -> bool:
        """Return whether the first, once cheaper, is so at every larger size."""
        known = [sign for sign in self.signs if sign]
        return known == sorted(known, reverse=True) and not (self.n.value == math.inf and -1 in known)


def crossover(sizes: Sequence[CostsAtSize], exact: bool) -> Crossover:
    """The crossover of two or more sizes by rising n.

    The interval of an `exact` cost, which has no noise, is the two sizes around n. Else it is the 95 % interval over
    rounds, of predicted times that of the bands; there is none where two neighbouring sizes have fewer than three
    rounds in common.

    The tests check the real coverage of that interval: 94 to 99 % for 3, 5 and 10 rounds, for curves that cross
    steeply and for curves so flat that most sizes are not told apart.
    """
    rounds = not exact and all(ratio_between(*both, 0.0).has_interval for both in pairwise(sizes))
    signs = tuple(_sign(size, rounds) for size in sizes)
    if not any(signs):
        return Crossover(Number(math.nan, 0.0, math.inf) if rounds else Number(math.nan), signs)
    n = _passes(sizes, "value")
    if rounds:
        return Crossover(Number(n, _passes(sizes, "low"), _passes(sizes, "high")), signs)
    if not exact:
        return Crossover(Number(n), signs)
    if n in (0, math.inf):
        return Crossover(Number(n, n, n), signs)
    after = bisect_right(sizes, n, key=lambda size: size.n)
    return Crossover(Number(n, sizes[after - 1].n, sizes[after].n), signs)


def ratio_between(lower: CostsAtSize, upper: CostsAtSize, share: float) -> Number:
    """The first's cost over the second's at this share of the way from one size to the next, on a log axis of n.

    Its interval is over the rounds that both times of both sizes have; it has none if these are fewer than three.
    """
    return ratio(_between(lower.first, upper.first, share), _between(lower.second, upper.second, share))


def _between(lower: Number, upper: Number, share: float) -> Number:
    """A cost between two sizes, on the power laws through its value and through the times of each round."""

    def on_law(one: float, other: float) -> float:
        return one * math.pow(other / one, share)

    rounds = lower.processes.keys() & upper.processes.keys()
    value = on_law(lower.value, upper.value)
    processes = {r: on_law(lower.processes[r], upper.processes[r]) for r in rounds}
    if lower.origin != "predicted":
        return Number(value, processes=processes, origin=lower.origin)
    errors = {
        source: (1 - share) * lower.errors.get(source, 0.0) + share * upper.errors.get(source, 0.0)
        for source in {**lower.errors, **upper.errors}
    }
    low, high = on_law(lower.low, upper.low), on_law(lower.high, upper.high)
    return Number(value, low, high, origin="predicted", errors=errors)


def _sign(size: CostsAtSize, rounds: bool) -> int:
    if rounds:
        found = ratio(size.first, size.second)
        return int(found.low > 1) - int(found.high < 1)
    return int(size.first.value > size.second.value) - int(size.first.value < size.second.value)


def _passes(sizes: Sequence[CostsAtSize], end: Literal["value", "low", "high"]) -> float:
    """The largest n at which the ratio, or a limit of its interval, is 1 or more; 0 if none is, infinity at the end."""
    from scipy.optimize import brentq

    steps = list(pairwise(sizes))

    def log_at(share: float, lower: CostsAtSize, upper: CostsAtSize) -> float:
        return math.log(getattr(ratio_between(lower, upper, share), end))

    if log_at(1.0, *steps[-1]) >= 0:
        return math.inf
    for lower, upper in reversed(steps):
        if log_at(0.0, lower, upper) >= 0:
            # The next step may have other rounds, and begin below 1 where this one ends above it.
            inside = log_at(1.0, lower, upper) < 0
            share = float(brentq(log_at, 0.0, 1.0, args=(lower, upper))) if inside else 1.0
            return lower.n * math.pow(upper.n / lower.n, share)
    return 0.0
