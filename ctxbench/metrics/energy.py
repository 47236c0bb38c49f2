"""Energy: joules a pass, from the device's own counter."""

from ctxbench.devices import Device, NotMeasurable
from ctxbench.devices.clock import Clock, Step
from ctxbench.messages import Doing
from ctxbench.metrics.base import Measurement, Metric, Pass, Quantity, Unit, by_mode
from ctxbench.mode import MODES, Mode

# The counter moves in steps of tens of milliseconds; in a window this long a step is less than 5 %.
WINDOW_S = 2.0


def measure_energy(step: Step, clock: Clock, device: Device) -> float:
    """Joules a pass of `step`, idle power included, over a window of about two seconds. Raises NotMeasurable."""
    device.energy_j()
    passes = max(1, round(WINDOW_S / max(clock.time_block(step, 1), 1e-6)))
    before = device.energy_j()
    clock.time_block(step, passes)
    return (device.energy_j() - before) / passes


def time(measurement: Measurement, mode: Mode, one_pass: Pass) -> None:
    """Report the joules of a pass, or a warning that says why there are none."""
    measurement.emit(Doing(f"energy_{mode}"))
    try:
        joules = measure_energy(one_pass.step, measurement.clock(), measurement.device)
    except NotMeasurable as error:
        measurement.report({}, str(error))
        return
    measurement.report({f"energy_{mode}_j": joules})


METRIC = Metric(
    name="energy",
    place=60,
    about="joules a pass, on NVIDIA GPUs",
    columns=by_mode("energy_{mode}_j", float),
    quantities=[
        Quantity(
            key=f"energy_{mode}",
            column=f"energy_{mode}_j",
            title=f"Energy, {mode}",
            unit=Unit("J"),
            origin="measured",
            part="energy",
            noun=f"{'training' if mode == 'train' else 'inference'} energy",
        )
        for mode in reversed(MODES)
    ],
    convention=lambda values: "Energy: joules a pass from the board's own counter, idle power included",
    default=False,
    time=time,
)
