"""Fits the float16 rates to whole networks under AMP: shares of peak and bandwidth, a factor of each card.

A pass takes the sum of its kernels. Those of float16 have the rates that are fitted here, beginning with what
calibrate_time.py found for single kernels; all others keep theirs. Classes whose rates are alike share one: `tied`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from network_passes import Pass
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ctxbench.plugins.predict.rates import (
    Effects,
    Rate,
    class_of,
    conversion_s,
    parts,
    rate,
    sustained,
    unit_of,
)
from ctxbench.plugins.predict.work import CHANNELS_LAST, NARROW, Work

FLOAT16 = "float16"
# Standard deviations, in logarithms: of a rate around that of single kernels; of a pass around its prediction.
RATE_SD, PASS_SD = 1.0, 0.1
# The share of a pass that a class must have to count as told by it.
TELLS = 0.05
LIMIT = np.log([1e-3, 1.3])
FOLDS = 5
# Classes that keep the rates that they begin with, in float16 too.
KEPT = ("irregular", "unknown", "FFT", "solver")
Array = NDArray[np.float64]
Group = tuple[str, str]
_NOTHING = Effects(0.0, 0.0, 0.0)


def tied(kind: str) -> tuple[str, str]:
    """The names of the share of the peak and of the bandwidth that a class of kernels has.

    Dense convolutions and their gradients have the same share of the peak. What memory alone bounds has no share of it.
    """
    name, *more = kind.split(", ")
    is_gradient = any(each.endswith("gradient") for each in more)
    turned = name + ", gradient" * is_gradient
    if name in NARROW:
        return turned + CHANNELS_LAST * kind.endswith(CHANNELS_LAST), turned
    if "convolution" in name:
        return name.removeprefix("strided "), "convolution" + ", gradient" * is_gradient
    if name == "fused attention":
        return name, "product"
    if "product" in name:
        return name if name in ("skinny product", "unaligned product") else "product", "product"
    return name if name == "pooling" else "", "memory"


@cache
def _start(work: Work, dtype: str) -> Rate:
    return rate(work, _NOTHING, dtype)


@dataclass
class Table:
    """Passes as arrays. A kernel is of pass `at` and of class `group`, with `flops` and `moved` [kernels, ways] over
    peak and bandwidth, and seconds of conversions; `fixed` are seconds of a pass that nothing here is fitted to.
    `place` [2, classes] has where the logarithms of a class's shares of peak and bandwidth are."""

    passes: Sequence[Pass]
    groups: list[Group] = field(init=False)

    def __post_init__(self) -> None:
        _start.cache_clear()  # the rates that a table begins with are those of the calibration in use
        index: dict[Group, int] = {}
        rows: list[tuple[float, ...]] = []
        known: dict[Group, Rate] = {}
        fixed = np.zeros(len(self.passes))
        for i, each in enumerate(self.passes):
            fixed[i] = each.kernels.total() * each.sheet.launch_s
            for (work, dtype), count in each.kernels.items():
                start = _start(work, dtype)
                if dtype != FLOAT16 or work.kind in KEPT:
                    fixed[i] += count * start.seconds(work, each.sheet, dtype)[0]
                    continue
                group = (class_of(work), FLOAT16)
                known.setdefault(group, start)
                unit = unit_of(work, dtype)
                peak = each.sheet.peak(unit) * float(sustained(each.sheet.watts_per_tflops(unit), start.watts))
                ways = list(work.ways(each.sheet, dtype))
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
        self._tie(known)

    def _tie(self, known: Mapping[Group, Rate]) -> None:
        """Each rate begins with the median of those of its classes."""
        begin: dict[tuple[str, str], list[float]] = {}
        for group, start in known.items():
            for key, share in zip(_keys(group), (start.compute, start.bandwidth), strict=True):
                begin.setdefault(key, []).append(float(np.log(share)))
        self.names = list(begin)
        self.place = np.array([[self.names.index(key) for key in _keys(group)] for group in self.groups]).T
        self.start = np.clip([np.median(logs) for logs in begin.values()], LIMIT[0] + 1e-6, LIMIT[1] - 1e-6)

    def predicted(self, x: Array) -> tuple[Array, Array, NDArray[np.int_]]:
        """Seconds of each pass and of its kernels by the rates `x`, and which rate bounds a kernel."""
        place = self.place[:, self.group]
        compute, bandwidth = np.exp(x[place])[..., None]
        ways = parts(self.flops, self.moved, compute, bandwidth, 1, 1)
        longer = np.maximum(*ways)
        best = (np.arange(len(longer)), longer.argmin(axis=1))
        kernels = (longer[best] + self.converted) * self.count
        bound = np.where(ways[0][best] > ways[1][best], *place)
        return np.bincount(self.at, kernels, len(self.passes)) + self.fixed, kernels, bound

    def shares(self, x: Array) -> Array:
        """The share of each class in the time of each pass [passes, classes]."""
        total, kernels, _ = self.predicted(x)
        found = np.zeros((len(self.passes), len(self.groups)))
        np.add.at(found, (self.at, self.group), kernels)
        return found / total[:, None]

    def errors(self, x: Array) -> Array:
        """The logarithm of measured over predicted, without factors of cards."""
        return np.asarray(np.log(self.seconds / self.predicted(x)[0]))


def _keys(group: Group) -> tuple[tuple[str, str], tuple[str, str]]:
    compute, bandwidth = tied(group[0])
    return ("compute", compute), ("bandwidth", bandwidth)


def fit(table: Table, train: NDArray[np.bool_] | None = None) -> Array:
    """The rates that fit the passes `train` best, robustly and in logarithms."""
    chosen = np.ones(len(table.passes), bool) if train is None else train

    def cost(x: Array) -> Array:
        return np.concatenate([table.errors(x)[chosen] / PASS_SD, (x - table.start) / RATE_SD])

    def slope(x: Array) -> Array:
        total, kernels, bound = table.predicted(x)
        found = np.zeros((len(total), len(x)))
        np.add.at(found, (table.at, bound), kernels / total[table.at])
        return np.vstack([found[chosen] / PASS_SD, np.eye(len(x)) / RATE_SD])

    limits = (LIMIT[0], LIMIT[1])
    return np.asarray(least_squares(cost, table.start, slope, bounds=limits, loss="soft_l1", max_nfev=80).x)


def factors(table: Table, x: Array, used: NDArray[np.bool_]) -> dict[str, tuple[float, int]]:
    """By card: the logarithm of its factor, the median error of the passes `used`, and how many these are."""
    errors = table.errors(x)
    own = {title: errors[used & (table.card == c)] for c, title in enumerate(table.cards)}
    return {title: (float(np.median(found)), len(found)) for title, found in own.items() if len(found)}


def folds(passes: Sequence[Pass]) -> list[NDArray[np.bool_]]:
    """Folds of passes left out together: networks of the same first word, in as many parts as FOLDS."""
    sizes = Counter(each.kin for each in passes)
    parts: list[set[str]] = [set() for _ in range(FOLDS)]
    for kin, _ in sizes.most_common():
        min(parts, key=lambda part: sum(sizes[each] for each in part)).add(kin)
    return [np.array([each.kin in part for each in passes]) for part in parts]


def rates_of(table: Table, x: Array) -> Mapping[Group, tuple[float, float]]:
    """The shares of peak and of bandwidth of each class."""
    found = zip(table.groups, np.exp(x[table.place]).T, strict=True)
    return {group: (float(compute), float(bandwidth)) for group, (compute, bandwidth) in found}
