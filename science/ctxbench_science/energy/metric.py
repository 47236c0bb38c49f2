"""Energy: joules per pass from the device's own counter, with the idle power beside it."""

import time as wall

from ctxbench.base.mode import MODES, NOUNS, Mode
from ctxbench.base.notes import Note
from ctxbench.devices import Device, NotMeasurable
from ctxbench.devices.clock import Clock, Step
from ctxbench.model.messages import Doing
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, TimedPass, Unit, by_mode

# The counter moves in steps of up to a tenth of a second; in a window this long a step is 1 %.
WINDOW_S = 10.0
BLOCK_S = 0.5
# For the idle power: clocks and power fall for a while after the last pass.
SETTLE_S = 1.0
IDLE_S = 2.0


def measure_energy(step: Step, clock: Clock, device: Device) -> float:
    """Joules a pass of `step`, idle power included, over a window of at least ten seconds. Raises NotMeasurable."""
    device.energy_j()
    block = max(1, round(BLOCK_S / max(clock.time_block(step, 1), 1e-6)))
    passes = 0
    before, end = device.energy_j(), clock.now() + WINDOW_S
    while clock.now() < end:
        clock.time_block(step, block)
        passes += block
    return (device.energy_j() - before) / passes


def idle_power(clock: Clock, device: Device) -> float:
    """Watts of the device with this process's context on it and no work. Raises NotMeasurable."""
    device.energy_j()
    device.synchronize()
    wall.sleep(SETTLE_S)
    before, start = device.energy_j(), clock.now()
    wall.sleep(IDLE_S)
    return (device.energy_j() - before) / (clock.now() - start)


def time(measurement: Measurement, mode: Mode, one_pass: TimedPass) -> None:
    """Report the joules of a pass, or a note that says why there are none; the cache is not flushed between."""
    measurement.emit(Doing(f"energy_{mode}"))
    try:
        joules = measure_energy(one_pass.step, measurement.device.clock(), measurement.device)
    except NotMeasurable as error:
        measurement.mark_missing([f"energy_{mode}_j"], Note("no_energy", {"reason": str(error)}))
        return
    measurement.report({f"energy_{mode}_j": joules})


def finish(measurement: Measurement) -> None:
    """Report the idle power; a device without the counter was warned of by `time`."""
    try:
        watts = idle_power(measurement.device.clock(), measurement.device)
    except NotMeasurable as error:
        measurement.report({}, Note("no_energy", {"reason": str(error)}))
        return
    measurement.report({"energy_idle_w": watts})


METRIC = Metric(
    name="energy",
    order=60,
    about="joules per pass, on NVIDIA GPUs",
    columns=[*by_mode("energy_{mode}_j", float), Column("energy_idle_w", float)],
    quantities=[
        Quantity(
            key=f"energy_{mode}",
            column=f"energy_{mode}_j",
            title=f"Energy, {mode}",
            unit=Unit("J"),
            origin="measured",
            part="energy",
            noun=f"{NOUNS[mode]} energy",
        )
        for mode in reversed(MODES)
    ],
    convention="Energy: joules per pass from the board's own counter, idle power included",
    default=False,
    time=time,
    finish=finish,
)
