"""The time of a pass on a device that is not here: predicted on the meta device, never measured."""

import json
from typing import TYPE_CHECKING

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.notes import Note
from ctxbench.base.number import CONFIDENCE
from ctxbench.model.metric import Measurement, Metric, by_mode
from ctxbench.plugins.memory.metric import pass_of
from ctxbench.plugins.predict.sheet import DeviceSpec, sheet

if TYPE_CHECKING:
    from ctxbench.plugins.memory.kernels import MemoryDevice

CONVENTION = (
    "Predicted times: from data sheets and efficiencies that were fitted to other kernels, not measured; 80 % band; "
    "infer: eval; train: forward and y.sum().backward() (see docs/plugins/predict.md)"
)


def count(measurement: Measurement) -> None:
    """Report the time of both modes if the case's device is known by its data sheet; why there is none is a note."""
    case = measurement.case
    for name in devices.sheets([case.device]):
        measurement.report({"latency_origin": "predicted"})
        if case.execution != "eager":
            reason = f"{case.execution}; only eager passes"
            measurement.report({}, Note("no_time", {"reason": reason}))
            continue
        for mode in MODES:
            _predict(measurement, mode, sheet(name))


def _predict(measurement: Measurement, mode: Mode, on: DeviceSpec) -> None:
    from ctxbench.plugins.memory.convention import UnpredictableError
    from ctxbench.plugins.predict.operators import operators_in
    from ctxbench.plugins.predict.passes import time_of

    case, key = measurement.case, f"latency_{mode}"
    era = measurement.settings.memory_device
    try:
        device: MemoryDevice = "cpu" if on.backend == "cpu" else era
        recorded = pass_of(measurement, mode, device)
        operators = measurement.once(f"operators {mode} {device}", lambda: operators_in(recorded))
        found = time_of(operators, on, case.dtype, era)
    except (UnpredictableError, UsageError) as error:
        measurement.report({}, Note("no_time_mode", {"mode": mode, "reason": str(error)}, key))
        return
    time = found.time
    errors = json.dumps({source: float(f"{sd:.3g}") for source, sd in time.errors.items()})
    ends = {
        "ms": time.value,
        "low_ms": time.low,
        "high_ms": time.high,
        "confidence": CONFIDENCE,
        "errors": errors,
    }
    values = {f"{key}_{name}": value for name, value in ends.items()}
    measurement.report(values, *found.notes(key))


METRIC = Metric(
    name="predicted_time",
    order=35,
    about="time of a pass on a device that is known by its data sheet, predicted; fills the columns of `latency`",
    asked_for=False,
    default=False,
    columns=[
        # The parts of a time's error by source, as JSON: standard deviations of its logarithm.
        *by_mode("latency_{mode}_errors", str, json=dict),
    ],
    quantities=[],
    convention=CONVENTION,
    count=count,
)
