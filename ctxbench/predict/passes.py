"""The time of one pass of a module on a device that is not here: its operators on meta, each at its class's rate."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ctxbench.devices.sheet import Sheet
from ctxbench.memory.kernel_rules import Call
from ctxbench.memory.kernels import Device
from ctxbench.memory.predict import predict_peak
from ctxbench.memory.profile import Step
from ctxbench.mode import Mode
from ctxbench.notes import Note
from ctxbench.predict import LAUNCHES
from ctxbench.predict.operators import works
from ctxbench.predict.rates import HOST_BAND, HOST_US, LAUNCH_US, Rate, rate
from ctxbench.predict.work import Bound, Work

# A larger share of the time in classes without measurements is told.
ASSUMED_NOTE = 0.05


@dataclass(frozen=True)
class Operator:
    """An operator call of a pass: its name, the line or autograd node that it belongs to, and its kernels."""

    name: str
    phase: str
    where: str
    works: tuple[Work, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel with its predicted time on a device, milliseconds without the launch."""

    operator: Operator
    work: Work
    rate: Rate
    ms: float
    bound: Bound


@dataclass(frozen=True)
class PassTime:
    """The predicted time of a pass and its 80 % band, milliseconds.

    `device_ms` is the time of the kernels and of what lies between them, `host_ms` that of the host to launch them;
    the longer one counts. The band takes the errors of all kernels to point the same way.
    """

    device_ms: float
    host_ms: float
    low_ms: float
    high_ms: float
    kernels: tuple[Kernel, ...]

    @property
    def ms(self) -> float:
        return max(self.device_ms, self.host_ms)

    @property
    def is_launch_bound(self) -> bool:
        """Whether launching takes longer than what is launched."""
        return self.host_ms > self.device_ms

    @property
    def assumed_share(self) -> float:
        """The share of the kernels' time that is in classes without measurements."""
        total = sum(kernel.ms for kernel in self.kernels)
        return sum(kernel.ms for kernel in self.kernels if kernel.rate.basis == "assumed") / total if total else 0.0

    @property
    def unknown(self) -> list[str]:
        """Operators of no known class: the bytes of their arguments and outputs alone are counted."""
        names = [kernel.operator.name for kernel in self.kernels if kernel.work.kind == "unknown"]
        return list(dict.fromkeys(names))

    def notes(self, dtype: str = "float32", memory_format: str = "contiguous", about: str = "") -> list[Note]:
        """What a reader must know of this number, which is of the quantity `about`."""
        found: list[tuple[str, dict[str, Any]]] = []
        if self.is_launch_bound:
            found.append((LAUNCHES, {"host_ms": self.host_ms, "device_ms": self.device_ms}))
        if self.assumed_share > ASSUMED_NOTE:
            kinds = dict.fromkeys(kernel.work.kind for kernel in self.kernels if kernel.rate.basis == "assumed")
            found.append(("time_assumed", {"share": self.assumed_share, "classes": [*kinds]}))
        if self.unknown:
            found.append(("time_unknown", {"operators": self.unknown}))
        if dtype != "float32":
            found.append(("time_dtype", {"dtype": dtype}))
        if memory_format != "contiguous":
            found.append(("time_layout", {"memory_format": memory_format}))
        return [Note(code, values, about) for code, values in found]


def operators_of(module: nn.Module, *inputs: Any, mode: Mode, device: Device = "cuda") -> list[Operator]:
    """The operators of one pass that start kernels, seen where `ctxbench.memory` predicts the peak.

    Raises UnpredictableError, with the reason, for a module that the meta device cannot run.
    """
    found: list[Operator] = []

    def observe() -> Callable[[Call, Step], None]:
        found.clear()
        return take

    def take(call: Call, step: Step) -> None:
        if kernels := works(call, step.inner):
            found.append(Operator(call.packet.removeprefix("aten."), step.phase, step.where, tuple(kernels)))

    predict_peak(module, *inputs, mode=mode, device=device, observe=observe)
    return found


def time_of(operators: Sequence[Operator], sheet: Sheet, dtype: str = "float32") -> PassTime:
    """The time of a pass with these operators. UsageError if the device has no unit for `dtype`."""
    sheet.peak(dtype)
    kernels = [_kernel(each, work, sheet, dtype) for each in operators for work in each.works]
    launches = len(kernels) * LAUNCH_US / 1e3
    host = len(operators) * HOST_US / 1e3
    low, high = (math.fsum(k.ms * getattr(k.rate, side) for k in kernels) + launches for side in ("low", "high"))
    return PassTime(
        device_ms=math.fsum(kernel.ms for kernel in kernels) + launches,
        host_ms=host,
        low_ms=max(low, host / HOST_BAND),
        high_ms=max(high, host * HOST_BAND),
        kernels=tuple(kernels),
    )


def _kernel(operator: Operator, work: Work, sheet: Sheet, dtype: str) -> Kernel:
    found = rate(work, sheet, dtype)
    seconds, by_arithmetic = found.seconds(work, sheet, dtype)
    ms = seconds * 1e3
    longest: Bound = "arithmetic" if by_arithmetic else "bandwidth"
    return Kernel(operator, work, found, ms, "launches" if ms < LAUNCH_US / 1e3 else longest)
