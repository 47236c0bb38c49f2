"""How much of a data sheet's figures each class of kernels reaches: fitted to measured kernels, or assumed.

`calibration.csv` is written by benchmarks/calibrate_time.py; its first lines say from which measurements.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from ctxbench.devices.sheet import Sheet
from ctxbench.predict.work import Class, Work

# The `device` of the rows of calibration.csv that hold for devices without measurements.
ANY = "any"
# The host's time for an operator in eager mode, and the device's between two kernels of a queue. Assumed.
HOST_US, LAUNCH_US = 10.0, 3.0
# Hosts differ by this factor in either direction. Assumed.
HOST_BAND = 2.0
# A step of a solver that waits for the one before, microseconds. Assumed.
STEP_US = 2.0
# The factor by which a band is widened on either side in a dtype without measurements.
OTHER_DTYPE = 1.5
# No band is narrower than this factor on either side: cards of one model and their hosts differ. Assumed.
LEAST_BAND = 1.1
Basis = Literal["measured on this device", "measured on other devices", "assumed"]


@dataclass(frozen=True)
class Rate:
    """The shares of peak and bandwidth that a class reaches, and the 80 % band of time over prediction.

    `watts` is the power for each TFLOP/s of peak at which a device sustains half of its peak. `factor` multiplies the
    time: what a device's own measurements say. `like` is the class that was measured in place of this one.
    """

    compute: float
    bandwidth: float
    low: float
    high: float
    basis: Basis
    watts: float = 0.0
    factor: float = 1.0
    like: str = ""

    def seconds(self, work: Work, sheet: Sheet, dtype: str) -> tuple[float, bool]:
        """The time of a kernel without its launch, and whether arithmetic bounds it."""
        item = {"float64": 8, "float16": 2, "bfloat16": 2}.get(dtype, 4)
        if dtype == "tf32" and work.product is None:
            dtype = "float32"  # TF32 is for products and convolutions alone
        flops, moved = np.array(list(work.ways(sheet, item))).T
        peak = sheet.peak(dtype) * sustained(sheet.watts_per_tflops, self.watts)
        arithmetic, transfer = parts(flops, moved, self.compute, self.bandwidth, peak, sheet.bandwidth)
        best = int(np.argmin(np.maximum(arithmetic, transfer)))
        time = self.factor * max(arithmetic[best], transfer[best]) + work.steps * STEP_US * 1e-6
        return float(time), bool(arithmetic[best] > transfer[best]) or work.steps > 0


def parts(flops: Any, moved: Any, compute: float, bandwidth: float, peak: Any, memory: Any) -> tuple[Any, Any]:
    """Seconds of the arithmetic and of the transfers; the longer one counts."""
    return flops / (compute * peak), moved / (bandwidth * memory)


def sustained(watts_per_tflops: Any, watts: float) -> Any:
    """The share of its peak that a device's power sustains; `watts` for each TFLOP/s sustain half."""
    return watts_per_tflops / (watts_per_tflops + watts)


# Classes without measurements that take the rates of another.
_LIKE: dict[Class, Class] = {"other convolution": "convolution 3x3"}
# Without any measurement: round numbers, with a band that says so.
_ASSUMED: Mapping[Class, Rate] = {
    "depthwise convolution": Rate(0.10, 0.5, 1 / 2.5, 2.5, "assumed"),
    "FFT": Rate(0.10, 0.5, 1 / 2.5, 2.5, "assumed"),
    "solver": Rate(0.02, 0.5, 1 / 4, 4.0, "assumed"),
    "fused attention": Rate(0.40, 0.6, 1 / 2, 2.0, "assumed"),
    "unknown": Rate(1.0, 0.5, 1 / 4, 4.0, "assumed"),
}


def rate(work: Work, sheet: Sheet, dtype: str = "float32") -> Rate:
    """What holds for a kernel on a device in a dtype."""
    kind = _LIKE.get(work.kind, work.kind)
    if work.kind == "convolution 1x1" and work.product is not None:
        kind = work.product.kind
    if kind in _ASSUMED:
        return _ASSUMED[kind]
    rows = calibration()[kind]
    own = rows.get(sheet.title)
    row, basis = (own, "measured on this device") if own else (rows[ANY], "measured on other devices")
    wide = 1.0 if dtype == "float32" else OTHER_DTYPE
    return Rate(
        compute=row["compute"],
        bandwidth=row["bandwidth"],
        low=min(row["low"], 1 / LEAST_BAND) / wide,
        high=max(row["high"], LEAST_BAND) * wide,
        basis=basis,  # type: ignore[arg-type]  # one of the two above
        watts=row["watts"],
        factor=row["factor"],
        like=kind if kind != work.kind else "",
    )


@cache
def calibration() -> dict[str, dict[str, dict[str, float]]]:
    """`calibration.csv` by class and device."""
    text = (files("ctxbench.predict") / "calibration.csv").read_text(encoding="utf-8")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        kind, device = row.pop("class"), row.pop("device")
        found.setdefault(kind, {})[device] = {name: float(cell) for name, cell in row.items()}
    return found
