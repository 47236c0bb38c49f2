"""Times of the kernels that calibrate a device."""

from collections.abc import Callable
from statistics import median

import torch

from ctxbench import devices
from ctxbench.devices.clock import Clock, Step
from ctxbench.predict.probes import kernel
from ctxbench.worker.protocol import GpuProperties, KernelTime, Reply, TimeKernels

# Seconds of a block of passes, and blocks of each placement in memory.
BLOCK_S, BLOCKS = 0.02, 5
# Each kernel has its tensors allocated so many times, and the fastest counts: where they lie can make one slower.
PLACEMENTS = 3
# What torch tells of a GPU.
PROPERTIES = (
    "major", "minor", "multi_processor_count", "clock_rate", "memory_clock_rate", "memory_bus_width", "L2_cache_size"
)  # fmt: skip


def time_kernels(task: TimeKernels, emit: Callable[[Reply], object]) -> None:
    """Report the time of each kernel, and of the control workload before and after all."""
    device = devices.device(task.device)
    device.set_flags("float32", task.threads, False)
    clock = device.clock()
    torch.manual_seed(0)

    def control() -> None:
        emit(KernelTime("control", 1e3 * _time(clock, device.control_workload())))

    if device.kind == "cuda":
        found = torch.cuda.get_device_properties(device.torch)
        emit(GpuProperties({name: int(getattr(found, name, 0)) for name in PROPERTIES}))
    control()
    for name in task.kernels:
        with torch.inference_mode():
            ms = 1e3 * min(_time(clock, kernel(name).step(device.torch)) for _ in range(PLACEMENTS))
        emit(KernelTime(name, ms))
    control()


def _time(clock: Clock, step: Step) -> float:
    """Seconds of a pass: the median of some blocks, after a block that warms up."""
    clock.time_block(step, 1)
    passes = max(1, round(BLOCK_S / max(clock.time_block(step, 2) / 2, 1e-9)))
    return median(clock.time_block(step, passes) / passes for _ in range(BLOCKS))
