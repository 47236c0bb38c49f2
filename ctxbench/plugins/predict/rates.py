"""Efficiency of each class of kernels against a data sheet's figures: fitted to measured kernels, or assumed.

`efficiencies.csv` and `devices.csv` are written by research/calibrate_time.py, `errors.csv` by research/band_widths.py,
`hopper.csv` by research/fit_hopper.py, `products.csv` by research/fit_products.py; their first lines say from what. The
error of a predicted time has parts: the device's, which all its kernels share; of a class without measurements; of the
kernels in one pass. `effects` says which are known of a device.
"""

import csv
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from ctxbench.base import disk
from ctxbench.base.dtypes import TF32
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.plugins.predict.work import CACHED, CHANNELS_LAST, KEPT, NARROW, NO_FAST, Class, Work, itemsize

Era = Literal["cuda", "cuda-2020"]
# The host's time for an operator in eager mode: the middle of the 80 % band from 8 to 64, which launch-bound networks
# of KernelBench show (10 to 19 on a fast host, 20 to 43 in clouds, 64 on one host).
HOST_US, HOST_SD = 23.0, 0.81
# The same of a host that was measured. Assumed.
HOST_KNOWN_SD = 0.2
# Its time to keep the gradient of a parameter, in that of operators: what launch-bound training steps on an H200 show
# (research/host_launches.py).
GRADIENT_LAUNCHES = 4.0
# A step of a solver that waits for the one before, and a call of a solver, microseconds: cuSOLVER from 2020 on, and
# MAGMA before, on an RTX 2070 SUPER (PyTorch, pull request 42403).
STEP_US: Mapping[Era, float] = {"cuda": 4.2, "cuda-2020": 6.5}
# MAGMA inverts a single matrix, which is no batch, with the host: milliseconds (the same source).
HOST_SOLVER_MS = 7.4
# Standard deviations, in logarithms.
# What a class that was not measured in a dtype differs by from float32, and from a dtype of the same unit: assumed.
DTYPE_SD, UNIT_SD = 0.3, 0.1
LAYOUT_SD = 0.4  # of a layout that was not measured: as narrow convolutions in float16 differ
# The share of the bandwidth of conversions between layouts, with which timm's networks in both layouts agree best. It
# is above 1: some maps are not converted, or are still in the cache.
CONVERSION = 1.2
# The card whose kernels tell the classes of Hopper cards.
HOPPER_CARD = "NVIDIA H200"
# The error of training in 16 bits, which has a size of its own in `errors.csv`.
TRAINING_HALF = "training, 16 bits"
# What a form of kernels on a processor differs by from the measured ones, for each factor of e between them. Assumed.
FORM_SD = 0.35
# What a gradient that was not measured differs by from its forward kernel: as gradients do that were.
TURN_SD = 0.35


@dataclass(frozen=True)
class Rate:
    """The shares of peak and bandwidth that a class reaches, and how well that is known of a device.

    `watts` is the power for each TFLOP/s of a unit's peak that sustains half of that peak. `factor` multiplies the
    time: what the device's own measurements say. `call_s` are seconds of a call in a queue beside. Standard deviations
    of the logarithm of the time: `device` times the error that all classes share, `own` of the class, `within` of
    kernels in one pass. Without `has_dtype` the class was measured in another dtype, without `has_layout` in the other
    layout, without `knows_card` no kernel of the card in the dtype.
    """

    compute: float
    bandwidth: float
    watts: float = 0.0
    factor: float = 1.0
    call_s: float = 0.0
    device: float = 0.0
    own: float = 0.0
    within: float = 0.0
    has_dtype: bool = True
    has_layout: bool = True
    is_assumed: bool = False
    knows_card: bool = True

    @property
    def sd(self) -> float:
        """The error of one kernel: the standard deviation of the logarithm of its time."""
        return math.hypot(self.device, self.own, self.within)

    def seconds(self, work: Work, sheet: DeviceSpec, dtype: str, era: Era = "cuda") -> tuple[float, bool]:
        """The time of a kernel without its launch, and whether arithmetic bounds it."""
        flops, moved = np.array(list(work.ways(sheet, dtype))).T
        unit = unit_of(work, dtype)
        peak = sheet.peak(unit) * sustained(sheet.watts_per_tflops(unit), self.watts)
        arithmetic, transfer = parts(flops, moved, self.compute, self.bandwidth, peak, sheet.bandwidth)
        best = int(np.argmin(np.maximum(arithmetic, transfer)))
        time = max(arithmetic[best], transfer[best]) + conversion_s(work, sheet, dtype)
        time = self.factor * time + max(0.0, self.call_s - sheet.launch_s) + work.steps * STEP_US[era] * 1e-6
        if work.steps and work.single and era == "cuda-2020":
            time += HOST_SOLVER_MS * 1e-3
        return float(time), bool(arithmetic[best] > transfer[best]) or work.steps > 0


def unit_of(work: Work, dtype: str) -> str:
    """The dtype of the unit that computes a kernel: what is no product has float32's, in dtypes of tensor cores too."""
    return dtype if work.is_product or dtype == "float64" else "float32"


def conversion_s(work: Work, sheet: DeviceSpec, dtype: str) -> float:
    """Seconds to convert maps for tensor cores: kernels for 16 bits read channels last, those for TF32 both layouts."""
    converts = sheet.has_tensor_cores and work.is_product and itemsize(dtype) == 2
    return work.converted_bytes / (CONVERSION * sheet.bandwidth) if converts else 0.0


def parts(flops: Any, moved: Any, compute: Any, bandwidth: Any, peak: Any, memory: Any) -> tuple[Any, Any]:
    """Seconds of the arithmetic and of the transfers; the longer one counts."""
    return flops / (compute * peak), moved / (bandwidth * memory)


def sustained(watts_per_tflops: Any, watts: float) -> Any:
    """The share of its peak that a device's power sustains; `watts` for each TFLOP/s sustain half."""
    return 1 / (1 + watts / watts_per_tflops)


@dataclass(frozen=True)
class Efficiency:
    """A class in a dtype, on devices at large: a row of `efficiencies.csv`.

    `sd`: the standard deviation of a class without measurements, in logarithms.
    """

    compute: float
    bandwidth: float
    sd: float = 0.0
    assumed: bool = False


# Classes that a GPU computes at the rate of another: memory bounds both.
_LIKE: Mapping[Class, Class] = {"transcendental": "elementwise", "copy": "elementwise"}
# Without any measurement: round numbers, with a band that says so.
_ASSUMED: Mapping[Class, Efficiency] = {
    "FFT": Efficiency(0.10, 0.5, 0.6, assumed=True),
    "solver": Efficiency(0.02, 0.5, 0.8, assumed=True),
    "fused attention": Efficiency(0.40, 0.6, 0.45, assumed=True),
    # Sorts, scans, tables by index, samples between positions: how many passes they take is not known.
    "irregular": Efficiency(1.0, 0.4, 0.7, assumed=True),
    "unknown": Efficiency(1.0, 0.5, 1.0, assumed=True),
}


@dataclass(frozen=True)
class Factor:
    """Measured over predicted times of a class on a device, as logarithms with the error of the measurement.

    `points` are kernels of rising size, (logarithm of their bytes, logarithm of the factor), by their form
    (`Work.form`); one stands for all sizes, and one form for all.
    """

    points: Mapping[float, Sequence[tuple[float, float]]]
    noise: float

    def at(self, size: float, form: float = CACHED) -> float:
        """The logarithm for a kernel that moves `size` bytes: between two sizes or forms on the line through them."""
        logs = []
        for points in (own for _, own in sorted(self.points.items())):
            sizes, own_logs = zip(*points, strict=True)
            logs.append(np.interp(math.log(size), sizes, own_logs) if size > 0 else own_logs[0])
        return float(np.interp(math.log(form), [math.log(each) for each in sorted(self.points)], logs))

    def beyond(self, form: float) -> float:
        """The error of a form outside of the measured ones; none where one form alone was measured."""
        low, high = min(self.points), max(self.points)
        return FORM_SD * max(0.0, math.log(low / form), math.log(form / high)) if low < high else 0.0

    @property
    def logs(self) -> list[float]:
        return sorted(log for points in self.points.values() for _, log in points)

    @property
    def mean(self) -> float:
        return math.fsum(self.logs) / len(self.logs)


@dataclass(frozen=True)
class ProductRate:
    """Rate of products in 16 bits that are in no batch: shares of peak and bandwidth, seconds of a call in a queue.

    `card` is the factor of a card whose products were measured; None: of any other.
    """

    compute: float
    bandwidth: float
    call_s: float
    card: float | None = None


@dataclass(frozen=True)
class Effects:
    """Effects of a device: the factor that its classes share with its error, and each class's own.

    A class's logarithm is `(1 - weight) * shared + weight * measured`, with an error of its own. `card_sd` is what the
    device at hand may differ by in all classes alike, `least_sd` the least that its classes differ by. `classes` have,
    of a card whose architecture was measured by class (`hopper_class`), the logarithm of the factor and its error.
    `products` is the rate of products in 16 bits where no measured passes of the card tell it, `reach` the most that
    a processor's fast kernels take of a depthwise convolution's.
    """

    shared: float
    shared_sd: float
    card_sd: float
    measured: Mapping[str, Factor] = field(default_factory=dict)
    least_sd: float = 0.0
    knows_card: bool = True
    classes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    products: ProductRate | None = None
    reach: int = 0

    def form(self, work: Work) -> float:
        """The form of a kernel on this device; 0: only by what the caches hold."""
        return NO_FAST if work.reach > self.reach else work.form

    def of(self, group: str, sd: float, size: float, form: float = CACHED) -> tuple[float, float, float]:
        """The logarithm of a class's factor, its share of the device's error, and its own error."""
        sd, factor = max(sd, self.least_sd), self.measured.get(group)
        weight = sd**2 / (sd**2 + factor.noise**2) if factor else 0.0
        log = (1 - weight) * self.shared + weight * (factor.at(size, form) if factor else 0.0)
        own_sd = math.hypot(sd * math.sqrt(1 - weight), factor.beyond(form) if factor else 0.0)
        return log, math.hypot((1 - weight) * self.shared_sd, self.card_sd), own_sd


def shared(measured: Collection[Factor], class_sd: float, device_sd: float) -> tuple[float, float]:
    """The logarithm of the factor that a device's classes share, and its error.

    A mean of the factors of the classes, which differ by `class_sd`: weighted by how well each tells it, and drawn to 0
    by `device_sd`.
    """
    weights = [1 / (class_sd**2 + factor.noise**2) for factor in measured]
    precision = 1 / device_sd**2 + math.fsum(weights)
    told = math.fsum(weight * factor.mean for weight, factor in zip(weights, measured, strict=True))
    return told / precision, precision**-0.5


def rate(work: Work, known: Effects, dtype: str = "float32", trains: bool = False) -> Rate:
    """Rate of a kernel in a dtype on a device with these known effects, in a pass that `trains` or not."""
    dtype = "float32" if dtype == TF32 and not work.is_product else dtype
    if known.products and is_single_product(work) and itemsize(dtype) == 2:
        return _of_product(known.products, known)
    found, own, groups, spread = _efficiency(work, dtype)
    dtype_known = dtype if own == "float32" else own
    group = next((each for each in groups if f"{each}|{dtype_known}" in known.measured), groups[-1])
    # In inference a map may still be in the cache, or not.
    form = known.form(work) or (KEPT if trains else math.sqrt(CACHED * KEPT))
    log, device, own_sd = known.of(f"{group}|{dtype_known}", found.sd, work.bytes, form)
    own_class = known.classes.get(hopper_class(work, dtype))
    if own_class:
        is_measured = f"{group}|{dtype_known}" in known.measured
        log, own_sd, own, spread = log + own_class[0], own_sd if is_measured else own_class[1], dtype, 0.0
    dense_last = work.channels_last and work.kind not in NARROW and unit_of(work, dtype) == "float32"
    has_layout = not dense_last and groups[-1].endswith(CHANNELS_LAST) == work.group.endswith(CHANNELS_LAST)
    return Rate(
        compute=found.compute,
        bandwidth=found.bandwidth,
        watts=calibration().watts["float32" if unit_of(work, dtype) in ("float32", "float64") else "float16"],
        factor=math.exp(log),
        device=device,
        own=math.hypot(own_sd, spread, 0.0 if has_layout else LAYOUT_SD),
        within=calibration().kernel_sd,
        has_dtype=found.assumed or own == dtype,
        has_layout=has_layout,
        is_assumed=found.assumed and f"{group}|{dtype_known}" not in known.measured and not own_class,
        knows_card=known.knows_card or bool(own_class),
    )


def is_single_product(work: Work) -> bool:
    """Return whether a kernel is a matrix product in no batch: what public times of products have."""
    return work.kind.endswith(" product") and work.product is not None and work.product.batch == 1


def _of_product(own: ProductRate, known: Effects) -> Rate:
    factor = math.exp(known.shared) * (own.card or 1.0)
    device, within = math.hypot(known.shared_sd, known.card_sd), calibration().kernel_sd
    told = own.card is not None or known.knows_card
    return Rate(
        own.compute, own.bandwidth, factor=factor, call_s=own.call_s, device=device, within=within, knows_card=told
    )


def hopper_class(work: Work, dtype: str) -> str:
    """The class of a kernel in the table of NVIDIA's Hopper cards, such as `convolution, weight gradient|float32`.

    All dense convolutions are of one, and both dtypes of 16 bits.
    """
    is_dense = "convolution" in work.kind and work.kind not in NARROW
    kind = work.group.replace(work.kind, "convolution") if is_dense else work.group
    return f"{kind}|{'16 bits' if itemsize(dtype) == 2 else dtype}"


# Whose efficiencies a dtype takes where its own were not measured: first those of the same unit.
_SUBSTITUTES = {"float64": ("float32",), "bfloat16": ("float16",), TF32: ("float16",)}


def dtypes_for(dtype: str) -> tuple[str, ...]:
    """The dtypes whose measurements stand for one's, the best first."""
    return (dtype, *_SUBSTITUTES.get(dtype, ()))


def class_of(work: Work) -> str:
    """The class that a kernel's efficiency is fitted to."""
    return _LIKE.get(work.kind, work.group)


def _efficiency(work: Work, dtype: str) -> tuple[Efficiency, str, list[str], float]:
    """A kernel's efficiency and its dtype, the classes that may tell its factor, and the error of a stand-in.

    A layout that was not measured takes the rate of the other, a gradient that of the forward kernel, a dtype that of
    another one.
    """
    table, like = calibration().efficiencies, _LIKE.get(work.kind, work.kind)
    groups = list(dict.fromkeys((work.group, work.group.removesuffix(CHANNELS_LAST), work.kind, like)))
    for own in dict.fromkeys((*dtypes_for(dtype), "float32")):
        for group in groups:
            if found := table.get((group, own)):
                dtype_sd = 0.0 if own == dtype else DTYPE_SD if own == "float32" else UNIT_SD
                turn_sd = TURN_SD if work.turn != "forward" and work.turn not in group else 0.0
                return found, own, groups[: groups.index(group) + 1], math.hypot(dtype_sd, turn_sd)
    return _ASSUMED[work.kind], dtype, groups[:1], 0.0


@dataclass(frozen=True)
class Calibration:
    """Fitted values: efficiencies by class and dtype; the logarithm of a card's factor, by title, dtype and era.

    `watts` of float32's units and of tensor cores ("float16"); `errors` of a card that is "known" or "unknown", and
    of training (in 16 bits another): what a pass with gradients has beside. `kernel_sd` of a class's kernels in one
    pass. `hopper`: of classes on Hopper cards the logarithm of the factor, and its error. `products`: by title, and of
    "any" card.
    """

    efficiencies: Mapping[tuple[str, str], Efficiency]
    devices: Mapping[tuple[str, str, str], float]
    watts: Mapping[str, float]
    errors: Mapping[str, float]
    kernel_sd: float
    hopper: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    products: Mapping[str, ProductRate] = field(default_factory=dict)


@cache
def calibration() -> Calibration:
    """The five files."""
    rows = _rows("efficiencies.csv")
    watts = {row["dtype"]: float(row["watts"]) for row in rows if row["class"] == "any"}
    (kernel_sd,) = {float(row["sd"]) for row in rows if row["class"] == "any"}
    efficiencies = {
        (row["class"], row["dtype"]): Efficiency(float(row["compute"]), float(row["bandwidth"]))
        for row in rows
        if row["class"] != "any"
    }
    devices = {
        (row["device"], row["dtype"], row["era"]): math.log(float(row["factor"])) for row in _rows("devices.csv")
    }
    errors = {row["of"]: float(row["sd"]) for row in _rows("errors.csv")}
    hopper = {
        f"{row['class']}|{row['dtype']}": (math.log(float(row["factor"])), float(row["sd"]))
        for row in _rows("hopper.csv")
    }
    return Calibration(efficiencies, devices, watts, errors, kernel_sd, hopper, _products())


def _products() -> dict[str, ProductRate]:
    any_card, *cards = _rows("products.csv")
    found = ProductRate(
        float(any_card["compute"]), float(any_card["bandwidth"]), call_s=float(any_card["call_us"]) / 1e6
    )
    return {"any": found, **{row["card"]: replace(found, card=float(row["factor"])) for row in cards}}


def _rows(name: str) -> list[dict[str, str]]:
    text = disk.package_text("ctxbench.plugins.predict", name)
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
