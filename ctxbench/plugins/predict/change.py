"""Change of the predicted time of a module that changes: the operators that both versions have err alike in both."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ctxbench.base.number import CONFIDENCE_SDS, HOST, HOST_OWN_SD, KERNELS, OWN_SOURCES, TRAINING, Number, ratio
from ctxbench.plugins.predict.operators import Operator
from ctxbench.plugins.predict.passes import PassTime, training_error, trains


@dataclass(frozen=True)
class CostShare:
    """A kernel, or the start of an operator: what it is, its share of its pass, and its error by source.

    Errors are standard deviations of the logarithm of its time.
    """

    what: Hashable
    share: float
    errors: Sequence[tuple[str, float]]


def change_of(first: PassTime, second: PassTime, operators: tuple[Sequence[Operator], Sequence[Operator]]) -> Number:
    """The second predicted time over the first, of the same device, with its 80 % band; NaN of a pass without kernels.

    Where kernels and host may each decide how long a pass takes, the band holds what either says.
    """
    if not (first.kernels and second.kernels):
        return Number(math.nan, -math.inf, math.inf, is_ratio=True)
    bands = []
    if any(_may_decide(each, -1) for each in (first, second)):
        bands.append(_band(_kernels(first), _kernels(second), second.device_ms / first.device_ms))
    if any(_may_decide(each, 1) for each in (first, second)):
        bands.append(_band(_launches(operators[0]), _launches(operators[1]), second.host_ms / first.host_ms))
    if first.is_launch_bound != second.is_launch_bound:
        bands.append(ratio(second.time, first.time))
    low, high = min(each.low for each in bands), max(each.high for each in bands)
    return Number(second.time.value / first.time.value, low, high, origin="predicted", is_ratio=True)


def _may_decide(found: PassTime, sign: int) -> bool:
    """Return whether the host (1), or the kernels (-1), may take longer than the other within the host's 80 % band."""
    host_ms = found.host_ms * math.exp(sign * CONFIDENCE_SDS * found.host_sd)
    return (host_ms - found.device_ms) * sign >= 0


def _kernels(found: PassTime) -> list[CostShare]:
    has_gradients = trains(kernel.operator for kernel in found.kernels)
    of_training = [(TRAINING, training_error(found.dtype))] * has_gradients
    parts = []
    for each in found.kernels:
        group, rate = each.work.group, each.rate
        errors = [("device", rate.device), (group, rate.own), (f"{KERNELS} {group}", rate.within), *of_training]
        what = (each.operator.name, each.operator.phase, each.work, each.dtype)
        parts.append(CostShare(what, each.ms / found.device_ms, errors))
    return parts


def _launches(operators: Sequence[Operator]) -> list[CostShare]:
    total = sum(each.launches for each in operators)
    return [CostShare((each.name, each.phase), each.launches / total, [(HOST, HOST_OWN_SD)]) for each in operators]


def _band(before: Sequence[CostShare], now: Sequence[CostShare], value: float) -> Number:
    """The value with what is left of the errors: a part that both have errs alike in both.

    A source that two passes do not share, such as the scatter of kernels, errs anew in what one side alone has.
    """
    both = Counter(each.what for each in before) & Counter(each.what for each in now)
    shared, own = defaultdict[str, list[float]](list), defaultdict[tuple[str, int], list[float]](list)
    for parts, sign in ((before, -1), (now, 1)):
        left = Counter(both)
        for each in parts:
            is_common = left[each.what] > 0
            left[each.what] -= is_common
            for source, sd in each.errors:
                if is_common or not source.startswith((HOST, *OWN_SOURCES)):
                    shared[source].append(sign * each.share * sd)
                else:
                    own[source, sign].append(each.share * sd)
    error = math.exp(CONFIDENCE_SDS * math.hypot(*map(math.fsum, [*shared.values(), *own.values()])))
    return Number(value, value / error, value * error, is_ratio=True)
