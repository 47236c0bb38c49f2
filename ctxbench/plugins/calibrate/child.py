"""Times of the kernels that calibrate a device."""

from collections.abc import Callable, Sequence
from statistics import median

import torch

from ctxbench import devices
from ctxbench.base import clocks as this_machine
from ctxbench.base.load import starved
from ctxbench.devices.base import Device
from ctxbench.devices.clock import Clock, Step
from ctxbench.plugins.calibrate.wire import CONTROL, GpuProperties, KernelTime
from ctxbench.plugins.predict.probes import kernel

# Seconds of a block of passes, and blocks of each placement in memory.
BLOCK_S, BLOCKS = 0.02, 5
# Each kernel has its tensors allocated so many times, and the middle one counts: where they lie can make one slower.
PLACEMENTS = 3
# A kernel is measured at most so many times, until others leave it alone.
TRIES = 3
# What torch tells of a GPU.
PROPERTIES = (
    "major", "minor", "multi_processor_count", "clock_rate", "memory_clock_rate", "memory_bus_width", "L2_cache_size"
)  # fmt: skip


def time_kernels(name: str, threads: int | None, kernels: Sequence[str], emit: Callable[[object], object]) -> None:
    """Report the time of each kernel (see `ctxbench.plugins.predict.probes`) in float32, and of the control workload
    before and after all.
    """
    device = devices.device(name)
    device.set_flags("float32", threads, False)
    clock = device.clock()
    torch.manual_seed(0)

    if device.kind == "cuda":
        found = torch.cuda.get_device_properties(device.torch)
        others = device.state().get("other_processes", ())
        emit(GpuProperties({name: int(getattr(found, name, 0)) for name in PROPERTIES}, others))
    for each in (CONTROL, *kernels, CONTROL):
        emit(_undisturbed(device, clock, each))


def _undisturbed(device: Device, clock: Clock, name: str) -> KernelTime:
    """The kernel's time, measured anew while others disturb it."""
    for _ in range(TRIES):
        others, on_core = this_machine.here.others(), this_machine.here.on_core()
        if name == CONTROL:
            seconds = _time(clock, device.control_workload())
        else:
            known = kernel(name)
            with torch.inference_mode(not known.trains):
                seconds = median(_time(clock, known.step(device.torch)) for _ in range(PLACEMENTS))
        # A host that waits for a GPU need not have a core.
        found = KernelTime(name, 1e3 * seconds, others(), on_core() if device.has_threads else 1.0)
        if not starved(found.others_share, found.on_core):
            break
    return found


def _time(clock: Clock, step: Step) -> float:
    """Seconds of a pass: the median of some blocks, after a block that warms up."""
    clock.time_block(step, 1)
    passes = max(1, round(BLOCK_S / max(clock.time_block(step, 2) / 2, 1e-9)))
    return median(clock.time_block(step, passes) / passes for _ in range(BLOCKS))
