"""The time of one pass of a module on a device that is not here: its operators on meta, each at its class's rate."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, Literal

from ctxbench.base.dtypes import DTYPES, TF32, TF32_CONVOLUTIONS
from ctxbench.base.notes import UNMEASURED, Note
from ctxbench.base.number import (
    CONFIDENCE_SDS,
    DENORMALS,
    HOST,
    KERNELS,
    TRAINING,
    Number,
    kernels_alone,
    reason_unknown,
    significant,
)
from ctxbench.plugins.predict import LAUNCHES, NO_TF32
from ctxbench.plugins.predict.effects import effects_of
from ctxbench.plugins.predict.operators import Operator
from ctxbench.plugins.predict.rates import HOST_KNOWN_SD, HOST_SD, HOST_US, TRAINING_HALF, Era, Rate, calibration, rate
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.plugins.predict.work import Bound, Work, itemsize

# A larger share of the time in classes without measurements is told.
ASSUMED_NOTE = 0.05
# What a pass with denormal numbers on a CPU differs by, a standard deviation of the logarithm: on an Intel Xeon `swin`
# took three to six times as long in training as its kernels alone.
DENORMALS_SD = 1.4
# The eras of the software are told where their times differ by this factor.
ERAS_NOTE = 1.5


@dataclass(frozen=True)
class PredictedKernel:
    """A kernel, the dtype that it computes in, and its predicted time on a device, milliseconds without the launch."""

    operator: Operator
    work: Work
    dtype: str
    rate: Rate
    ms: float
    bound: Bound


@dataclass(frozen=True)
class PassTime:
    """The predicted `time` of a pass, milliseconds.

    `device_ms` is that of the kernels and of what lies between them, `host_ms` that of the host to launch them, 0 on a
    CPU; the longer one counts. `other_era_ms` is the time with the software of the other era, `default_ms` that in the
    dtype that PyTorch takes for float32 if nothing is set: TF32 in convolutions where the device has it. `host_sd` is
    the error of the host's, a standard deviation of its logarithm. `call_us` is what a call takes that computes
    nothing, and `operators_ms` each operator's part of the time that counts; of a time that is not known, of what the
    kernels alone take.
    """

    time: Number
    device_ms: float
    host_ms: float
    other_era_ms: float
    default_ms: float
    dtype: str
    era: Era
    host_us: float
    call_us: float
    host_sd: float
    host_origin: Literal["assumed", "scaled", "measured"]
    kernels: tuple[PredictedKernel, ...]
    operators_ms: tuple[float, ...]

    @property
    def is_launch_bound(self) -> bool:
        """Return whether launching takes longer than what is launched."""
        return self.host_ms > self.device_ms

    @property
    def assumed_share(self) -> float:
        """The share of the kernels' time that is in classes without measurements."""
        return self._share(lambda kernel: kernel.rate.is_assumed)

    @property
    def assumed_classes(self) -> list[str]:
        """The classes without measurements that it has kernels of."""
        return list(dict.fromkeys(kernel.work.kind for kernel in self.kernels if kernel.rate.is_assumed))

    def _share(self, counts: Callable[[PredictedKernel], bool]) -> float:
        total = sum(kernel.ms for kernel in self.kernels)
        return sum(kernel.ms for kernel in self.kernels if counts(kernel)) / total if total else 0.0

    @property
    def unknown(self) -> list[str]:
        """Operators of no known class: the bytes of their arguments and outputs alone are counted."""
        names = [kernel.operator.name for kernel in self.kernels if kernel.work.kind == "unknown"]
        return list(dict.fromkeys(names))

    def notes(self, about: str = "") -> list[Note]:
        """Notes on this number, which is of the quantity `about`."""
        found: list[tuple[str, dict[str, Any]]] = []
        if self.is_launch_bound:
            host = {"us": self.host_us, "origin": self.host_origin}
            ms = {"host_ms": self.host_ms, "device_ms": self.device_ms, "kernels": self.time.kernels}
            found.append((LAUNCHES, {**ms, **host}))
        if self.assumed_share > ASSUMED_NOTE:
            found.append((UNMEASURED, {"share": self.assumed_share, "classes": self.assumed_classes}))
        ratio = self.other_era_ms / self.time.value if self.time.value else 1.0
        if max(ratio, 1 / ratio) > ERAS_NOTE and not self.time.unknown:
            other = "of today" if self.era == "cuda-2020" else "of 2020"
            found.append(("time_era", {"other": other, "ms": self.other_era_ms}))
        if significant(self.default_ms) != significant(self.time.value):
            found.append((NO_TF32, {"ms": self.default_ms, "ratio": self.default_ms / self.time.value}))
        if self._share(lambda kernel: not kernel.rate.knows_card) > ASSUMED_NOTE:
            found.append(("time_card", {"dtype": self.dtype}))
        if self.unknown:
            found.append(("time_unknown", {"operators": self.unknown}))
        if self._share(lambda kernel: not kernel.rate.has_dtype) > ASSUMED_NOTE:
            dtypes = dict.fromkeys(kernel.dtype for kernel in self.kernels if not kernel.rate.has_dtype)
            found.append(("time_dtype", {"dtype": [*dtypes]}))
        if self._share(lambda kernel: not kernel.rate.has_layout) > ASSUMED_NOTE:
            found.append(("time_layout", {}))
        return [Note(code, values, about) for code, values in found]


def time_of(operators: Sequence[Operator], sheet: DeviceSpec, dtype: str = "float32", era: Era = "cuda") -> PassTime:
    """The time of a pass with these operators. UsageError if the device has no unit for `dtype`.

    Each operator computes in the dtype of its arguments: `dtype` says what products in float32 may do, and the notes
    are about it.
    """
    kernels = _kernels(operators, sheet, dtype, era)
    gap_us, gaps = _gaps(operators, sheet)
    launches = gap_us * sum(gaps) / 1e3
    device = math.fsum(kernel.ms for kernel in kernels) + launches
    operators_ms = tuple(_with_gaps(operators, kernels, [gap_us * each / 1e3 for each in gaps]))
    host_us = sheet.host_us or HOST_US
    # A CPU launches nothing: its gaps are all that its calls take.
    host = sum(each.launches for each in operators) * host_us / 1e3 if sheet.backend == "cuda" else 0.0
    other: Era = "cuda" if era == "cuda-2020" else "cuda-2020"

    def device_ms(dtype: str, era: Era) -> float:
        return math.fsum(kernel.ms for kernel in _kernels(operators, sheet, dtype, era)) + launches

    errors = errors_of(kernels, device, dtype)
    if sheet.train_us and device:
        errors["operators"] = launches / device * HOST_KNOWN_SD
    if sheet.backend == "cpu" and any(each.makes_denormals for each in operators):
        errors[DENORMALS] = DENORMALS_SD
    host_sd = HOST_KNOWN_SD if sheet.host_us and sheet.kernels_ms else HOST_SD
    of_device, of_host = (CONFIDENCE_SDS * sd for sd in (math.hypot(*errors.values()), host_sd))
    time = Number(
        max(device, host),
        low=max(device * math.exp(-of_device), host * math.exp(-of_host)),
        high=max(device * math.exp(of_device), host * math.exp(of_host)),
        origin="predicted",
        errors=errors if device >= host else {HOST: host_sd},
    )
    found = PassTime(
        time,
        device_ms=device,
        host_ms=host,
        other_era_ms=max(device_ms(dtype, other), host),
        default_ms=max(device_ms(TF32_CONVOLUTIONS if dtype == "float32" else dtype, era), host),
        dtype=dtype,
        era=era,
        host_us=host_us,
        call_us=gap_us,
        host_sd=host_sd,
        host_origin="assumed" if not sheet.host_us else "measured" if sheet.kernels_ms else "scaled",
        kernels=kernels,
        operators_ms=operators_ms,
    )
    why = reason_unknown(time.low, time.high, time.errors, found.assumed_share, found.assumed_classes)
    if why:
        return replace(
            found, time=replace(time, unknown=why, kernels=kernels_alone(device, errors, found.assumed_share))
        )
    if found.is_launch_bound:
        return replace(found, call_us=host_us, operators_ms=tuple(each.launches * host_us / 1e3 for each in operators))
    return found


def trains(operators: Iterable[Operator]) -> bool:
    """Return whether a pass has gradients."""
    return any(each.phase == "backward" for each in operators)


def _gaps(operators: Sequence[Operator], sheet: DeviceSpec) -> tuple[float, list[int]]:
    """Microseconds of a gap, and the gaps of each operator: of a GPU's queue, one a kernel.

    On a CPU that was measured a gap is what a call takes beside its arithmetic; with gradients, a view takes it, too.
    """
    if sheet.backend != "cpu" or not sheet.train_us or not sheet.host_us:
        return sheet.launch_s * 1e6, [len(each.works) for each in operators]
    if trains(operators):
        return sheet.train_us, [1 + each.views for each in operators]
    return sheet.host_us, [1] * len(operators)


def _with_gaps(
    operators: Iterable[Operator], kernels: Iterable[PredictedKernel], gaps_ms: Iterable[float]
) -> Iterator[float]:
    """Milliseconds of each operator: its kernels and its gaps."""
    left = iter(kernels)
    for each, gap_ms in zip(operators, gaps_ms, strict=True):
        yield math.fsum(kernel.ms for kernel in islice(left, len(each.works))) + gap_ms


def calls_of(operators: Iterable[Operator]) -> int:
    """The calls of a pass, views among them."""
    return sum(1 + each.views for each in operators)


def training_error(dtype: str) -> float:
    """The error of a pass with gradients beside that of its kernels, a standard deviation of the logarithm."""
    return calibration().errors[TRAINING_HALF if itemsize(DTYPES[dtype].autocast or dtype) == 2 else TRAINING]


def errors_of(kernels: Sequence[PredictedKernel], total_ms: float, dtype: str) -> dict[str, float]:
    """The parts of the error of a pass of `total_ms` in `dtype`: the device's, each class's, the kernels', training's.

    The kernels of a class in one pass err alike; the errors of several classes average out. A pass with gradients has
    an error of its own beside that.
    """
    device, classes, scatter = 0.0, defaultdict[str, float](float), defaultdict[str, float](float)
    has_gradients = trains(kernel.operator for kernel in kernels)
    for kernel in kernels:
        share = kernel.ms / total_ms
        device += share * kernel.rate.device
        classes[kernel.work.group] += share * kernel.rate.own
        scatter[kernel.work.group] += share * kernel.rate.within
    return {
        "device": device,
        **{name: sd for name, sd in classes.items() if sd},
        KERNELS: math.hypot(*scatter.values()),
        **({TRAINING: training_error(dtype)} if has_gradients else {}),
    }


def _kernels(operators: Sequence[Operator], sheet: DeviceSpec, dtype: str, era: Era) -> tuple[PredictedKernel, ...]:
    """The kernels of a pass; those that do the same work are priced once."""
    autocast = DTYPES[dtype].autocast
    sheet.peak(autocast or ("float32" if dtype == TF32_CONVOLUTIONS else dtype))
    known, has_gradients = cache(lambda own: effects_of(sheet, era, autocast or own)), trains(operators)
    priced = cache(lambda work, own: _priced(work, rate(work, known(own), own, has_gradients), (sheet, own, era)))
    return tuple(
        PredictedKernel(each, work, own, *priced(work, own))
        for each in operators
        for work in each.works
        for own in (_computed_in(work, each.dtype, dtype, sheet),)
    )


def _computed_in(work: Work, own: str, dtype: str, sheet: DeviceSpec) -> str:
    """The dtype that a kernel computes in, of arguments in `own` in a pass in `dtype`.

    Contiguous depthwise convolutions in bfloat16 go to PyTorch's own kernel, which computes in float32: of 16 bits,
    cuDNN gets float16 and channels last (`use_cudnn_depthwise` of aten/src/ATen/native/Convolution.cpp).
    """
    if own == "bfloat16" and work.kind == "depthwise convolution" and not work.channels_last:
        return "float32"
    if own != "float32" or dtype not in (TF32, TF32_CONVOLUTIONS):
        return own
    takes_tf32 = dtype == TF32 or ("convolution" in work.kind and TF32 in sheet.peak_tflops)
    return TF32 if takes_tf32 else "float32"


def _priced(work: Work, found: Rate, on: tuple[DeviceSpec, str, Era]) -> tuple[Rate, float, Bound]:
    """The rate, the milliseconds and what bounds them."""
    seconds, by_arithmetic = found.seconds(work, *on)
    ms = seconds * 1e3
    longest: Bound = "arithmetic" if by_arithmetic else "bandwidth"
    return found, ms, "launches" if ms < on[0].launch_s * 1e3 else longest
