"""Launches of passes on a GPU that is not here, and the change of their predicted times from the baseline's."""

from collections.abc import Mapping, Sequence

from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES, Mode
from ctxbench.model.case import Case, Measure
from ctxbench.plugins.check.wire import PredictedPass
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.predict.change import change_of
from ctxbench.plugins.predict.operators import Operator, operators_in
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import DeviceSpec

# By mode: the operators that start kernels, or why they are not known.
Passes = Mapping[Mode, list[Operator] | str]


def list_passes(case: Case, measure: Measure, sheet: DeviceSpec) -> Passes:
    """The operators of each mode that start kernels on a device of this data sheet, or why they are not known."""
    return {mode: _operators(case, measure, sheet, mode) for mode in MODES}


def compare_passes(case: Case, measure: Measure, sheet: DeviceSpec, before: Passes) -> list[PredictedPass]:
    """Each mode's kernels and predicted times now, beside those of the operators `before`."""
    found = []
    for mode, now in list_passes(case, measure, sheet).items():
        then = before[mode]
        if isinstance(now, str) or isinstance(then, str):
            side = f"{now}" if isinstance(now, str) else f"in the baseline, {then}"
            found.append(PredictedPass(mode, unknown=side))
        else:
            found.append(_compared(mode, (then, now), case, measure, sheet))
    return found


def _operators(case: Case, measure: Measure, sheet: DeviceSpec, mode: Mode) -> list[Operator] | str:
    if case.execution != "eager":
        return f"only eager passes are predicted, not {case.execution}"
    module, x = case.on_meta()
    device = "cpu" if sheet.backend == "cpu" else measure.memory_device
    try:
        return operators_in(predict_peak(module, x, mode=mode, device=device, autocast=case.autocast_dtype))
    except UnpredictableError as error:
        return str(error)


def _compared(
    mode: Mode, sides: tuple[Sequence[Operator], Sequence[Operator]], case: Case, measure: Measure, sheet: DeviceSpec
) -> PredictedPass:
    try:
        first, second = (time_of(each, sheet, case.dtype, measure.memory_device) for each in sides)
    except UsageError as error:
        return PredictedPass(mode, unknown=str(error))
    change = change_of(first, second, sides)
    return PredictedPass(
        mode,
        kernels=(len(first.kernels), len(second.kernels)),
        times=(first.time.told("ms"), second.time.told("ms")),
        change=(change.value, change.low, change.high),
        untold=first.time.unknown or second.time.unknown,
    )
