"""Fits the float16 classes to whole networks under AMP: their shares of peak and bandwidth, cards, and errors.

A pass takes the sum of its kernels. Those of float16 have the rates that are fitted here, beginning with what
calibrate_time.py found for single kernels; all others keep theirs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from network_passes import Pass
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize
from scipy.stats import norm

from ctxbench.base.number import CONFIDENCE
from ctxbench.plugins.predict.rates import (
    Effects,
    Rate,
    class_of,
    conversion_s,
    itemsize,
    parts,
    rate,
    sustained,
    unit_of,
)
from ctxbench.plugins.predict.work import Work

FLOAT16 = "float16"
# Standard deviations, in logarithms: of a rate around that of single kernels; of a pass around its prediction; of
# cards, and of classes on a card.
RATE_SD, PASS_SD, CARD, CLASS = 1.0, 0.1, 0.12, 0.1
# The share of a pass that a class must have to tell of a card's factor for it.
TELLS = 0.05
# A class's kernels in one network differ from the prediction alike: by 0.15 before anything is known, give or take.
PRIOR_WITHIN, PRIOR_SPREAD, WITHIN = 0.15, 0.5, (0.03, 0.6)
LIMIT = np.log([1e-3, 1.3])
FOLDS = 5
Array = NDArray[np.float64]
Group = tuple[str, str]
_NOTHING = Effects(0.0, 0.0, 0.0)


@cache
def _start(work: Work, dtype: str) -> Rate:
    return rate(work, _NOTHING, dtype)


@dataclass
class Table:
    """Passes as arrays. A kernel is of pass `at` and of class `group`, with `flops` and `moved` [kernels, ways] over
    peak and bandwidth, and seconds of conversions; `fixed` are seconds of a pass that nothing here is fitted to."""

    passes: Sequence[Pass]
    groups: list[Group] = field(init=False)

    def __post_init__(self) -> None:
        _start.cache_clear()  # the rates that a table begins with are those of the calibration in use
        index: dict[Group, int] = {}
        rows: list[tuple[float, ...]] = []
        self.start: dict[Group, Rate] = {}
        fixed = np.zeros(len(self.passes))
        for i, each in enumerate(self.passes):
            fixed[i] = each.kernels.total() * each.sheet.launch_s
            for (work, dtype), count in each.kernels.items():
                known = _start(work, dtype)
                if dtype != FLOAT16:
                    fixed[i] += count * known.seconds(work, each.sheet, dtype)[0]
                    continue
                group = (class_of(work), FLOAT16)
                self.start.setdefault(group, known)
                unit = unit_of(work, dtype)
                peak = each.sheet.peak(unit) * float(sustained(each.sheet.watts_per_tflops(unit), known.watts))
                ways = list(work.ways(each.sheet, itemsize(dtype)))
                (one, two) = (ways[0], ways[-1])
                place = index.setdefault(group, len(index))
                converted = conversion_s(work, each.sheet, dtype)
                rows.append((i, place, count, one[0] / peak, two[0] / peak, one[1], two[1], converted))
        columns = np.array(rows).T
        self.at, self.group = columns[0].astype(int), columns[1].astype(int)
        self.count, self.flops, self.converted = columns[2], columns[3:5].T, columns[7]
        self.moved = columns[5:7].T / np.array([self.passes[i].sheet.bandwidth for i in self.at])[:, None]
        self.fixed, self.groups = fixed, list(index)
        self.seconds = np.array([each.seconds for each in self.passes])
        self.cards = sorted({each.sheet.title for each in self.passes})
        self.card = np.array([self.cards.index(each.sheet.title) for each in self.passes])

    def predicted(self, x: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Seconds of each pass and of its kernels, and which are bound by arithmetic; parameters as in `split`."""
        compute, bandwidth, cards, classes = self.split(x)
        shares = [np.exp(logs)[self.group, None] for logs in (compute, bandwidth)]
        ways = parts(self.flops, self.moved, shares[0], shares[1], 1, 1)
        longer = np.maximum(*ways)
        best = (np.arange(len(longer)), longer.argmin(axis=1))
        card = self.card[self.at]
        kernels = (longer[best] + self.converted) * self.count * np.exp(cards[card] + classes[card, self.group])
        total = np.bincount(self.at, kernels, len(self.passes)) + self.fixed * np.exp(cards[self.card])
        return total, kernels, ways[0][best] > ways[1][best]

    def split(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Logarithms: shares of peak and of bandwidth of each class, the factor of each card, of each class on it."""
        n, m = len(self.groups), len(self.cards)
        return x[:n], x[n : 2 * n], x[2 * n : 2 * n + m], x[2 * n + m :].reshape(m, n)

    def shares(self, x: Array) -> Array:
        """The share of each class in the time of each pass [passes, classes]."""
        total, kernels, _ = self.predicted(x)
        found = np.zeros((len(self.passes), len(self.groups)))
        np.add.at(found, (self.at, self.group), kernels)
        return found / total[:, None]

    def errors(self, x: Array) -> Array:
        """The logarithm of measured over predicted."""
        return np.asarray(np.log(self.seconds / self.predicted(x)[0]))


def fit(table: Table, train: NDArray[np.bool_] | None = None) -> Array:
    """The parameters that fit the passes `train` best, robustly: first rates that all cards share, then the cards'."""
    chosen = np.ones(len(table.passes), bool) if train is None else train
    n, m = len(table.groups), len(table.cards)
    start = np.log([[table.start[group].compute, table.start[group].bandwidth] for group in table.groups]).T.ravel()
    x = np.concatenate([np.clip(start, LIMIT[0] + 1e-6, LIMIT[1] - 1e-6), np.zeros(m + m * n)])
    sds = np.concatenate([np.full(2 * n, RATE_SD), np.full(m, CARD), np.full(m * n, CLASS)])
    for free in (slice(0, 2 * n), slice(2 * n, len(x))):
        x = _solved(table, chosen, x, sds, free)
    return x


def _solved(table: Table, chosen: NDArray[np.bool_], start: Array, sds: Array, free: slice) -> Array:
    """The parameters with those of `free` fitted, which have these standard deviations around their start."""
    n, m = len(table.groups), len(table.cards)

    def whole(part: Array) -> Array:
        return np.concatenate([start[: free.start], part, start[free.stop :]])

    def cost(part: Array) -> Array:
        return np.concatenate([table.errors(whole(part))[chosen] / PASS_SD, (part - start[free]) / sds[free]])

    def slope(part: Array) -> Array:
        total, kernels, by_arithmetic = table.predicted(whole(part))
        share, card = kernels / total[table.at], table.card[table.at]
        found = np.zeros((len(total), len(start)))
        np.add.at(found, (table.at, table.group + n * ~by_arithmetic), share)
        np.add.at(found, (table.at, 2 * n + m + card * n + table.group), -share)
        found[np.arange(len(total)), 2 * n + table.card] = -1.0
        return np.vstack([found[chosen][:, free] / PASS_SD, np.diag(1 / sds[free])])

    low, high = (LIMIT[0], LIMIT[1]) if free.start == 0 else (-3.0, 3.0)
    found = least_squares(cost, start[free], slope, bounds=(low, high), loss="soft_l1", max_nfev=80)
    return whole(np.asarray(found.x))


def folds(passes: Sequence[Pass]) -> list[NDArray[np.bool_]]:
    """Folds of passes left out together: networks of the same first word, in as many parts as FOLDS."""
    sizes = Counter(each.kin for each in passes)
    parts: list[set[str]] = [set() for _ in range(FOLDS)]
    for kin, _ in sizes.most_common():
        min(parts, key=lambda part: sum(sizes[each] for each in part)).add(kin)
    return [np.array([each.kin in part for each in passes]) for part in parts]


def within(shares: Array, errors: Array) -> Array:
    """Spread of prediction errors of the kernels of each class in one network: a standard deviation a class.

    They are what makes the errors of networks that were left out most likely, and then as large as holds 80 % of them.
    """
    half = norm.ppf((1 + CONFIDENCE) / 2)
    square = np.minimum(np.abs(errors), 0.5) ** 2

    def cost(x: Array) -> float:
        variance = shares**2 @ np.exp(2 * x) + 1e-4
        prior = float(np.sum((x - np.log(PRIOR_WITHIN)) ** 2)) / (2 * PRIOR_SPREAD**2)
        return prior + 0.5 * float(np.sum(np.log(variance) + square / variance))

    start, limits = np.full(shares.shape[1], np.log(PRIOR_WITHIN)), [np.log(WITHIN)] * shares.shape[1]
    found = np.exp(minimize(cost, start, method="L-BFGS-B", bounds=limits).x)
    scale = float(np.quantile(np.abs(errors) / np.sqrt(shares**2 @ found**2), CONFIDENCE)) / half
    return np.asarray(found * scale)


def factors(table: Table, x: Array, used: NDArray[np.bool_]) -> dict[Group, dict[str, tuple[float, int]]]:
    """By class and card: the logarithm of the factor, and how many of the networks `used` tell it."""
    _, _, cards, classes = table.split(x)
    tell = (table.shares(x) > TELLS) & used[:, None]
    found: dict[Group, dict[str, tuple[float, int]]] = {}
    for place, group in enumerate(table.groups):
        for c, title in enumerate(table.cards):
            told = {table.passes[int(i)].network for i in np.flatnonzero(tell[:, place] & (table.card == c))}
            if told:
                found.setdefault(group, {})[title] = (float(cards[c] + classes[c, place]), len(told))
    return found


def rates_of(table: Table, x: Array) -> Mapping[Group, tuple[float, float]]:
    """The shares of peak and of bandwidth of each class."""
    compute, bandwidth, *_ = table.split(x)
    return {group: (float(np.exp(compute[i])), float(np.exp(bandwidth[i]))) for i, group in enumerate(table.groups)}
