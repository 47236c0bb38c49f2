"""Energy: joules a pass on an NVIDIA GPU, from the board's own counter (Volta and later)."""

from typing import TYPE_CHECKING

from ctxbench.engine.conditions import nvml

if TYPE_CHECKING:
    import torch

    from ctxbench.engine.clock import Clock, Step

# The counter moves in steps of tens of milliseconds; a window this long makes a step count under 5 %.
WINDOW_S = 2.0


class NoEnergyCounter(NotImplementedError):
    """This device, driver or installation has no energy counter to read."""


def measure_energy(step: "Step", clock: "Clock", device: "torch.device") -> float:
    """Joules a pass of `step`, idle power included, over a window of about two seconds. Raises NoEnergyCounter."""
    if device.type != "cuda":
        raise NoEnergyCounter("energy is read from NVIDIA GPUs only")
    with nvml(device.index or 0) as found:
        if found is None:
            raise NoEnergyCounter("energy needs NVML: pip install ctxbench[nvidia]")
        library, handle = found
        passes = max(1, round(WINDOW_S / max(clock.time_block(step, 1), 1e-6)))
        before_mj = library.nvmlDeviceGetTotalEnergyConsumption(handle)
        clock.time_block(step, passes)
        after_mj = library.nvmlDeviceGetTotalEnergyConsumption(handle)
    return float(after_mj - before_mj) / 1000 / passes
