"""Knowledge of a device: from kernels that were measured on it, or on cards of its model."""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import numpy as np

from ctxbench.base.dtypes import TF32
from ctxbench.base.errors import UsageError
from ctxbench.plugins.predict.operators import operators_of
from ctxbench.plugins.predict.probes import kernel
from ctxbench.plugins.predict.rates import Effects, Era, Factor, calibration, dtypes_for, rate, shared
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.plugins.predict.work import CACHED, FAST_REACH, KEPT

# Standard deviations, in logarithms.
# A device that was calibrated itself: its clocks from day to day on a GPU; on a CPU also where its maps lie and what
# its caches hold, which a kernel alone does not show: set so that four in five of 86 times of 12 blocks lay in their
# band in two trials of 2026-11-28 on an Intel Xeon. One kernel of a class: its scatter. Both others are assumed.
SAME_CARD_SD, SAME_CPU_SD, KERNEL_SD = 0.05, 0.27, 0.15
# Classes on a CPU, whose efficiencies are those of GPUs where they were not measured. Assumed.
CPU_SD = 0.5
# A calibration has so many kernels, and their times are within this factor of what its data sheet lets expect.
FEWEST_KERNELS, MOST_APART = 5, 2.5


def effects_of(sheet: DeviceSpec, era: Era, dtype: str = "float32") -> Effects:
    """A device's effects: from the kernels that were measured on it, else the factor of its model.

    A model that was measured in the other era alone has the factor of that. One that was not measured in the dtype is
    unknown.
    """
    found = calibration()
    other: Era = "cuda" if era == "cuda-2020" else "cuda-2020"
    known = [
        found.devices[key]
        for key in ((sheet.title, own, each) for own in dtypes_for(dtype) for each in (era, other))
        if key in found.devices
    ]
    # The public times are of cards from Ampere on, which have TF32, with today's software.
    is_told = era == "cuda" and TF32 in sheet.peak_tflops and not known
    products = found.products.get(sheet.title, found.products.get("any")) if is_told else None
    if sheet.kernels_ms:
        card_sd, class_sd = (SAME_CPU_SD, CPU_SD) if sheet.backend == "cpu" else (SAME_CARD_SD, found.kernel_sd)
        own = _own_factors(sheet.model_dump_json())
        its = shared(own.values(), class_sd, max(found.errors["unknown"], class_sd))
        return Effects(
            *its, card_sd, own, class_sd, classes=_hopper(sheet, era), products=products, reach=_reach(sheet)
        )
    card = "known" if known else "unknown"
    return Effects(
        known[0] if known else 0.0,
        0.0,
        found.errors[card],
        knows_card=bool(known),
        classes=_hopper(sheet, era),
        products=products,
    )


def _reach(sheet: DeviceSpec) -> int:
    """Reach of a processor's fast kernels; where its instructions are not told, that with AVX-512."""
    return FAST_REACH[sheet.instructions or "AVX512"]


def _hopper(sheet: DeviceSpec, era: Era) -> Mapping[str, tuple[float, float]]:
    """Factors of classes on NVIDIA's Hopper cards with today's software."""
    return calibration().hopper if sheet.is_hopper and era == "cuda" else {}


def compared(sheet: DeviceSpec) -> list[tuple[str, int, str]]:
    """Each class of a calibrated device, how many of its kernels were measured, and measured over predicted times."""
    found = []
    for group, factor in _own_factors(sheet.model_dump_json()).items():
        ratios = [math.exp(log) for log in factor.logs]
        text = f"{ratios[0]:.2f}" if len(ratios) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        found.append((group.partition("|")[0], len(ratios), text))
    return found


@cache
def _own_factors(described: str) -> dict[str, Factor]:
    """The factors of the kernels that a sheet has times of, by class. UsageError for times that cannot be of it."""
    sheet = DeviceSpec.model_validate_json(described)
    if len(sheet.kernels_ms) < FEWEST_KERNELS:
        raise UsageError(
            f"{sheet.title} has {len(sheet.kernels_ms)} measured kernels, and {FEWEST_KERNELS} are needed: "
            "run ctxbench calibrate again, or remove kernels_ms"
        )
    points: dict[str, dict[float, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    nothing = Effects(0.0, 0.0, 0.0, classes=_hopper(sheet, "cuda"), reach=_reach(sheet))
    for name, ms in sheet.kernels_ms.items():
        known = kernel(name)
        operators = operators_of(known.module, *known.inputs("meta"), mode="infer", device=sheet.backend)
        works = [work for each in operators for work in each.works]
        seconds = [rate(work, nothing).seconds(work, sheet, "float32")[0] for work in works]
        longest = works[int(np.argmax(seconds))]
        alone = max(ms / 1e3 - len(works) * sheet.launch_s, ms / 2e3)
        form = KEPT if name.startswith("kept ") else nothing.form(longest) or CACHED
        form = form if sheet.backend == "cpu" else CACHED
        points[f"{longest.group}|float32"][form].append((math.log(longest.bytes), math.log(alone / sum(seconds))))
    factors = {
        group: Factor(
            {form: sorted(own) for form, own in forms.items()},
            KERNEL_SD / math.sqrt(max(map(len, forms.values()))),
        )
        for group, forms in points.items()
    }
    middle = float(np.median([log for factor in factors.values() for log in factor.logs]))
    if sheet.backend == "cuda" and abs(middle) > math.log(MOST_APART):
        raise UsageError(
            f"the kernels of {sheet.title} take {math.exp(middle):.2g} times what its data sheet lets expect. "
            "Are they of another device, or was its clock low? Run ctxbench calibrate on it again"
        )
    return factors
