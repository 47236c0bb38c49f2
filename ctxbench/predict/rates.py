"""How much of a data sheet's figures each class of kernels reaches: fitted to measured kernels, or assumed.

`efficiencies.csv` and `devices.csv` are written by benchmarks/calibrate_time.py; their first lines say from which
measurements. The error of a predicted time has parts: the device's, which all its kernels share; the class's on this
device; the kernel's. `effects` says which are known of a device.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from ctxbench.devices.sheet import Sheet
from ctxbench.dtypes import TF32
from ctxbench.predict.work import Class, Work

Era = Literal["cuda", "cuda-2020"]
# The host's time for an operator in eager mode: the middle of the 80 % band from 8 to 40, which launch-bound networks
# of KernelBench show (10 to 19 on a fast host, 20 to 43 in clouds).
HOST_US, HOST_SD = 18.0, 0.63
# The same of a host that was measured. Assumed.
HOST_KNOWN_SD = 0.2
# A step of a solver that waits for the one before, and a call of a solver, microseconds: cuSOLVER from 2020 on, and
# MAGMA before, on an RTX 2070 SUPER (PyTorch, pull request 42403).
STEP_US: Mapping[Era, float] = {"cuda": 4.2, "cuda-2020": 6.5}
# MAGMA inverts a single matrix, which is no batch, with the host: milliseconds (the same source).
HOST_SOLVER_MS = 7.4
# Standard deviations, in logarithms. A factor of a class: beside the scatter of its kernels.
FACTOR_SD = 0.05
# What a class that was not measured in a dtype differs by from its float32: assumed.
DTYPE_SD = 0.3
# What a gradient that was not measured differs by from its forward kernel: as gradients do that were.
TURN_SD = 0.35
Basis = Literal["measured on this device", "measured on other devices", "assumed"]


@dataclass(frozen=True)
class Rate:
    """The shares of peak and bandwidth that a class reaches, and how well that is known of a device.

    `watts` is the power for each TFLOP/s of peak at which a device sustains half of its peak. `factor` multiplies the
    time: what the device's own measurements say. Standard deviations of the logarithm of the time: `device` times the
    error that all classes share, `own` of the class, `within` of one kernel. `like` is the class that was measured in
    place of this one; without `has_dtype` it was measured in float32 alone.
    """

    compute: float
    bandwidth: float
    basis: Basis
    watts: float = 0.0
    factor: float = 1.0
    device: float = 0.0
    own: float = 0.0
    within: float = 0.0
    like: str = ""
    has_dtype: bool = True

    @property
    def sd(self) -> float:
        """The error of one kernel: the standard deviation of the logarithm of its time."""
        return math.hypot(self.device, self.own, self.within)

    def seconds(self, work: Work, sheet: Sheet, dtype: str, era: Era = "cuda") -> tuple[float, bool]:
        """The time of a kernel without its launch, and whether arithmetic bounds it."""
        dtype = unit_of(work, dtype)
        flops, moved = np.array(list(work.ways(sheet, itemsize(dtype)))).T
        peak = sheet.peak(dtype) * sustained(sheet.watts_per_tflops, self.watts)
        arithmetic, transfer = parts(flops, moved, self.compute, self.bandwidth, peak, sheet.bandwidth)
        best = int(np.argmin(np.maximum(arithmetic, transfer)))
        time = self.factor * max(arithmetic[best], transfer[best]) + work.steps * STEP_US[era] * 1e-6
        if work.steps and work.single and era == "cuda-2020":
            time += HOST_SOLVER_MS * 1e-3
        return float(time), bool(arithmetic[best] > transfer[best]) or work.steps > 0


def unit_of(work: Work, dtype: str) -> str:
    """The dtype of a kernel's arithmetic: TF32 is for products, and for convolutions that are not depthwise."""
    is_product = work.product is not None and work.kind != "depthwise convolution"
    return "float32" if dtype == TF32 and not is_product else dtype


def itemsize(dtype: str) -> int:
    return {"float64": 8, "float16": 2, "bfloat16": 2}.get(dtype, 4)


def parts(flops: Any, moved: Any, compute: float, bandwidth: float, peak: Any, memory: Any) -> tuple[Any, Any]:
    """Seconds of the arithmetic and of the transfers; the longer one counts."""
    return flops / (compute * peak), moved / (bandwidth * memory)


def sustained(watts_per_tflops: Any, watts: float) -> Any:
    """The share of its peak that a device's power sustains; `watts` for each TFLOP/s sustain half."""
    return 1 / (1 + watts / watts_per_tflops)


@dataclass(frozen=True)
class Efficiency:
    """A class in a dtype, on devices at large: a row of `efficiencies.csv`.

    `between`: the standard deviation of a device's factor for the class, without what all its classes share;
    `within`: of a kernel of the class on one device.
    """

    compute: float
    bandwidth: float
    between: float
    within: float
    assumed: bool = False


# Classes that a GPU computes at the rate of another: memory bounds both.
_LIKE: Mapping[Class, Class] = {"transcendental": "elementwise", "copy": "elementwise"}
# Without any measurement: round numbers, with a band that says so.
_ASSUMED: Mapping[Class, Efficiency] = {
    "FFT": Efficiency(0.10, 0.5, 0.6, 0.3, assumed=True),
    "solver": Efficiency(0.02, 0.5, 0.8, 0.3, assumed=True),
    "fused attention": Efficiency(0.40, 0.6, 0.45, 0.3, assumed=True),
    "unknown": Efficiency(1.0, 0.5, 1.0, 0.3, assumed=True),
}


@dataclass(frozen=True)
class Factor:
    """Measured over predicted times of a class on a device, as logarithms with the error of the measurement.

    `points` are kernels of rising size, (logarithm of their bytes, logarithm of the factor); one stands for all sizes.
    """

    points: tuple[tuple[float, float], ...]
    noise: float

    def at(self, size: float) -> float:
        """The logarithm for a kernel that moves `size` bytes: between two measured sizes on the line through them."""
        sizes, logs = zip(*self.points, strict=True)
        return float(np.interp(math.log(size), sizes, logs)) if size > 0 else logs[0]

    @property
    def mean(self) -> float:
        return math.fsum(log for _, log in self.points) / len(self.points)


@dataclass(frozen=True)
class Effects:
    """What is known of a device: the factor that its classes share with its error, and each class's own.

    A class's logarithm is `(1 - weight) * shared + weight * measured`, with an error of its own. `card_sd` is what the
    device at hand may differ by from the measured one, `least_between` the least that its classes differ by.
    """

    shared: float
    shared_sd: float
    card_sd: float
    measured: Mapping[str, Factor] = field(default_factory=dict)
    least_between: float = 0.0

    def of(self, group: str, between: float, size: float) -> tuple[float, float, float]:
        """The logarithm of a class's factor, its share of the device's error, and its own error."""
        between, factor = max(between, self.least_between), self.measured.get(group)
        weight = between**2 / (between**2 + factor.noise**2) if factor else 0.0
        log = (1 - weight) * self.shared + weight * (factor.at(size) if factor else 0.0)
        return log, math.hypot((1 - weight) * self.shared_sd, self.card_sd), between * math.sqrt(1 - weight)


def effects(
    measured: Mapping[str, Factor],
    between: Mapping[str, float],
    device_sd: float,
    card_sd: float,
    least_between: float = 0.0,
) -> Effects:
    """A device's effects from its measured factors.

    The shared one is a mean of the classes', weighted by how well each tells it, and drawn to 0 by `device_sd`.
    """
    weights = {
        group: 1 / (max(between.get(group, 0.0), least_between) ** 2 + factor.noise**2)
        for group, factor in measured.items()
    }
    precision = 1 / device_sd**2 + math.fsum(weights.values())
    shared = math.fsum(weights[group] * factor.mean for group, factor in measured.items()) / precision
    return Effects(shared, precision**-0.5, card_sd if measured else 0.0, measured, least_between)


def rate(work: Work, known: Effects, dtype: str = "float32") -> Rate:
    """What holds for a kernel in a dtype on a device of which so much is known."""
    dtype = unit_of(work, dtype)
    found = _ASSUMED.get(work.kind)
    spread, groups = 0.0, [work.group]
    if found is None:
        found, groups, spread = _efficiency(work, dtype)
    group = next((each for each in groups if f"{each}|{dtype}" in known.measured), groups[-1])
    is_measured = f"{group}|{dtype}" in known.measured
    log, device, own = known.of(f"{group}|{dtype}", found.between, work.bytes)
    return Rate(
        compute=found.compute,
        bandwidth=found.bandwidth,
        basis="assumed" if found.assumed and not is_measured else _BASES[is_measured],
        watts=calibration().watts,
        factor=math.exp(log),
        device=device,
        own=math.hypot(own, spread),
        within=found.within,
        like="" if group == work.group else group,
        has_dtype=found.assumed or any((each, dtype) in calibration().efficiencies for each in groups),
    )


_BASES: tuple[Basis, Basis] = ("measured on other devices", "measured on this device")


def _efficiency(work: Work, dtype: str) -> tuple[Efficiency, list[str], float]:
    """A kernel's efficiency, the classes that may tell its factor, and the error of taking another's in its place.

    A gradient that was not measured takes the rate of the forward kernel, a dtype that of float32.
    """
    table, like = calibration().efficiencies, _LIKE.get(work.kind, work.kind)
    groups = list(dict.fromkeys((work.group, work.kind, like)))
    for own, spread in ((dtype, 0.0), ("float32", 0.0 if dtype == "float32" else DTYPE_SD)):
        for group in groups:
            if found := table.get((group, own)):
                turn_sd = TURN_SD if group == work.kind != work.group else 0.0
                return found, groups[: groups.index(group) + 1], math.hypot(spread, turn_sd)
    raise KeyError(f"no efficiency of {work.group}")


@dataclass(frozen=True)
class Calibration:
    """What was fitted: efficiencies by class and dtype, each device's measured factors by era, the shared error."""

    efficiencies: Mapping[tuple[str, str], Efficiency]
    devices: Mapping[tuple[str, str], Mapping[str, Factor]]
    device_sd: float
    watts: float


@cache
def calibration() -> Calibration:
    """`efficiencies.csv` and `devices.csv`. A device's factor has the error of as many kernels as were measured."""
    efficiencies, shared = {}, {}
    for row in _rows("efficiencies.csv"):
        if row["class"] == "any":
            shared = row
            continue
        compute, bandwidth, between, within = (
            float(row[name]) for name in ("compute", "bandwidth", "between", "within")
        )
        efficiencies[row["class"], row["dtype"]] = Efficiency(compute, bandwidth, between, within)
    devices: dict[tuple[str, str], dict[str, Factor]] = {}
    for row in _rows("devices.csv"):
        within = efficiencies[row["class"], row["dtype"]].within
        noise = math.hypot(FACTOR_SD, within / math.sqrt(int(row["kernels"])))
        own = devices.setdefault((row["device"], row["era"]), {})
        own[f"{row['class']}|{row['dtype']}"] = Factor(((0.0, math.log(float(row["factor"]))),), noise)
    return Calibration(efficiencies, devices, float(shared["between"]), float(shared["watts"]))


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("ctxbench.predict") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
