"""The time of a pass on devices that are not here: predicted on the meta device, never measured."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctxbench.errors import UsageError
from ctxbench.messages import PredictedTime
from ctxbench.metrics.base import Measurement, Metric
from ctxbench.metrics.memory import on_meta_as_measured
from ctxbench.mode import MODES, Mode

if TYPE_CHECKING:
    from ctxbench.predict.passes import Operator
    from ctxbench.predict.sheets import Sheet

NAME = "predicted_time"
CONVENTION = (
    "Predicted times: from data sheets and efficiencies that were fitted to other kernels, not measured; 80 % band; "
    "infer: eval; train: forward and y.sum().backward() (see docs/prediction.md)"
)


def count(measurement: Measurement) -> None:
    """Send the time of both modes for each device that the suite names; why there is none is a warning."""
    from ctxbench.memory import UnpredictableError
    from ctxbench.predict.passes import operators_of
    from ctxbench.predict.sheets import sheet

    targets = {name: sheet(name) for name in measurement.settings.predict_for}
    case = measurement.case
    if not targets:
        return
    if case.execution != "eager" or case.dtype.startswith("autocast"):
        measurement.report({}, f"no predicted time: {case.execution}, {case.dtype}; only eager passes without autocast")
        return
    model, x = on_meta_as_measured(measurement)
    passes: dict[Mode, Sequence[Operator]] = {}
    for mode in MODES:
        try:
            passes[mode] = operators_of(model, x, mode=mode, device=measurement.settings.memory_device)
        except UnpredictableError as error:
            measurement.report({}, f"no predicted time ({mode}): {error}")
    for name, target in targets.items():
        for mode, operators in passes.items():
            _send(measurement, name, target, mode, operators)


def _send(measurement: Measurement, name: str, target: "Sheet", mode: Mode, operators: "Sequence[Operator]") -> None:
    from ctxbench.predict.passes import time_of

    try:
        found = time_of(operators, target, measurement.case.dtype)
    except UsageError as error:
        measurement.report({}, f"no predicted time: {error}")
        return
    notes = found.notes(measurement.case.dtype, measurement.case.memory_format)
    measurement.emit(PredictedTime(name, target.title, mode, found.ms, found.low_ms, found.high_ms, notes))


METRIC = Metric(
    name=NAME,
    place=35,
    about="time of a pass on the devices that `predict_for` names, predicted",
    default=False,
    columns=[],
    quantities=[],
    convention=lambda values: CONVENTION,
    count=count,
)
