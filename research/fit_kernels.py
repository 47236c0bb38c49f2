"""Fits the efficiencies of classes of kernels to single measured kernels, a factor of each card, and an error.

A fit is robust and in logarithms, and each device counts the same.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from prediction_data import Measured
from scipy.optimize import least_squares

from ctxbench.base.number import CONFIDENCE, CONFIDENCE_SDS
from ctxbench.plugins.predict.rates import Factor, conversion_s, parts, shared, sustained, unit_of
from ctxbench.plugins.predict.work import CACHED

# Where the fits of each class begin, of which the best counts: shares of peak and of bandwidth, microseconds of a call
# that is measured alone.
STARTS = ((0.8, 0.7, 20.0), (0.02, 0.7, 20.0), (0.6, 0.2, 20.0))
LIMITS = ((1e-3, 1e-2, 1.0), (1.5, 1.5, 500.0))
START_WATTS, LIMIT_WATTS = 6.0, (0.5, 60.0)
# Logarithmic errors above this count linearly.
ROBUST = 0.2
# What cards differ by, and classes on a card, in logarithms, before anything is known.
CARD_SD, CLASS_SD = 0.12, 0.1
Array = NDArray[np.float64]
Group = tuple[str, str]
# A card by its title, a dtype, and the era of the software.
Unit = tuple[str, str, str]
Fit = Mapping[str, float]


@dataclass
class Kernels:
    """The kernels of one class: `flops` and `moved` [kernels, ways], what the devices give, measured seconds.

    `unit` has the peak: float32's units or, as "float16", tensor cores. `converted` are seconds of conversions.
    """

    unit: str
    device: NDArray[np.str_]
    era: NDArray[np.str_]
    flops: Array
    moved: Array
    peak: Array
    memory: Array
    watts: Array
    alone: NDArray[np.bool_]
    converted: Array
    seconds: Array

    def of(self, wanted: NDArray[np.bool_]) -> "Kernels":
        _, *names = self.__dataclass_fields__
        return Kernels(self.unit, *(getattr(self, name)[wanted] for name in names))

    @property
    def units(self) -> NDArray[np.str_]:
        """A device with the software of an era: what has one factor."""
        return np.char.add(np.char.add(self.device, "|"), self.era)

    def predicted(self, fit: Fit) -> Array:
        """Seconds of a call, with its fixed time if it was measured alone."""
        peak = (self.peak * sustained(self.watts, fit["watts"]))[:, None]
        longer = np.maximum(
            *parts(self.flops, self.moved, fit["compute"], fit["bandwidth"], peak, self.memory[:, None])
        )
        return np.asarray(longer.min(axis=1) + self.converted + self.alone * fit["call_us"] * 1e-6)

    def errors(self, fit: Fit) -> Array:
        """The logarithm of measured over predicted."""
        return np.asarray(np.log(self.seconds / self.predicted(fit)))


def kernels_of(measured: Iterable[Measured]) -> dict[Group, Kernels]:
    """By class and dtype."""
    rows: dict[Group, list[Measured]] = {}
    for each in measured:
        rows.setdefault((each.work.group, each.dtype), []).append(each)
    return {group: _table(own) for group, own in sorted(rows.items())}


def _table(measured: Sequence[Measured]) -> Kernels:
    ways = [list(each.work.ways(each.sheet, each.dtype)) for each in measured]
    most = max(map(len, ways))
    # A kernel with fewer ways has its last one twice.
    table = np.array([own + own[-1:] * (most - len(own)) for own in ways])
    units = [unit_of(each.work, each.dtype) for each in measured]
    return Kernels(
        unit="float32" if units[0] == "float32" else "float16",
        device=np.array([each.sheet.title for each in measured]),
        era=np.array([each.era for each in measured]),
        flops=table[:, :, 0],
        moved=table[:, :, 1],
        peak=np.array([each.sheet.peak(unit) for each, unit in zip(measured, units, strict=True)]),
        memory=np.array([each.sheet.bandwidth for each in measured]),
        watts=np.array([each.sheet.watts_per_tflops(unit) for each, unit in zip(measured, units, strict=True)]),
        alone=np.array([each.alone for each in measured]),
        converted=np.array([conversion_s(each.work, each.sheet, each.dtype) for each in measured]),
        seconds=np.array([each.seconds for each in measured]),
    )


def fit(kernels: Kernels, watts: float | None = None) -> dict[str, float]:
    """The shares and the fixed time that fit best, robustly in logarithms; without `watts`, that as well."""
    names = ("compute", "bandwidth", "call_us", "watts")
    more = [] if watts is not None else [START_WATTS]
    limits = [
        np.log([*own, *([] if watts is not None else [each])]) for own, each in zip(LIMITS, LIMIT_WATTS, strict=True)
    ]

    def named(logarithms: Array) -> dict[str, float]:
        return {"watts": watts or 0.0} | dict(zip(names, np.exp(logarithms), strict=False))

    _, inverse, counts = np.unique(kernels.units, return_inverse=True, return_counts=True)
    loss = robust(1 / counts[inverse])
    found = [
        least_squares(
            lambda x: kernels.errors(named(x)), np.log([*start, *more]), loss=loss, f_scale=ROBUST, bounds=limits
        )
        for start in STARTS
    ]
    best = named(min(found, key=lambda each: each.cost).x)
    return best if kernels.flops.any() else best | {"compute": 1.0}


def robust(weights: Array) -> Callable[[Array], Array]:
    """scipy's soft_l1 with a weight for each kernel, so that each device counts the same."""
    return lambda z: np.stack(
        [weights * f for f in (2 * (np.sqrt(1 + z) - 1), (1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5)]
    )


def fit_all(classes: Mapping[Group, Kernels]) -> dict[Group, dict[str, float]]:
    """Each class's fit. The power that sustains half of a unit's peak comes from large products."""
    watts = {dtype: fit(each)["watts"] for (kind, dtype), each in classes.items() if kind == "large product"}
    return {group: fit(each, watts[each.unit]) for group, each in classes.items()}


def factors(classes: Mapping[Group, Kernels], fits: Mapping[Group, Fit]) -> dict[Unit, tuple[float, int]]:
    """Of each card in each dtype, with the software of an era: the logarithm of its factor, and from how many kernels.

    A mean over the classes of what their kernels differ by, drawn to none by CARD_SD.
    """
    found: dict[Unit, tuple[float, int]] = {}
    for dtype in sorted({own for _, own in classes}):
        told: dict[str, list[tuple[Factor, int]]] = {}
        for group, kernels in classes.items():
            for unit in np.unique(kernels.units) if group[1] == dtype else ():
                errors = kernels.of(kernels.units == unit).errors(fits[group])
                factor = Factor({CACHED: [(0.0, float(np.median(errors)))]}, CLASS_SD / math.sqrt(len(errors)))
                told.setdefault(str(unit), []).append((factor, len(errors)))
        for unit, own in told.items():
            title, era = unit.split("|")
            log, _ = shared([factor for factor, _ in own], CLASS_SD, CARD_SD)
            found[title, dtype, era] = (log, sum(count for _, count in own))
    return found


def kernel_sd(classes: Mapping[Group, Kernels], fits: Mapping[Group, Fit]) -> float:
    """The error with which the band holds 80 % of a class's kernels around their median on a card: the middle one."""
    found = []
    for group, kernels in classes.items():
        errors, units = kernels.errors(fits[group]), kernels.units
        medians = {unit: np.median(errors[units == unit]) for unit in np.unique(units)}
        apart = np.abs(errors - np.array([medians[unit] for unit in units]))
        if apart.any():  # two kernels on one card
            found.append(np.quantile(apart, CONFIDENCE))
    return float(np.median(found) / CONFIDENCE_SDS)
