"""The state of the machine around a measurement: clocks, temperature, load, and who else computes on the device."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def nvml(index: int) -> Iterator[tuple[Any, Any] | None]:
    """NVML and the handle of GPU `index`; None without the extra `[nvidia]` or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        yield None
        return
    try:
        yield pynvml, pynvml.nvmlDeviceGetHandleByIndex(_physical(index))
    finally:
        pynvml.nvmlShutdown()


def _physical(index: int) -> int:
    """NVML counts all GPUs; torch counts those that CUDA_VISIBLE_DEVICES leaves."""
    visible = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.isdigit()]
    return int(visible[index]) if index < len(visible) else index


def snapshot(device: str) -> dict[str, Any]:
    """The machine now: load average; on CUDA also clocks (MHz), temperature (C), power (W) and other processes."""
    state: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return state
    with nvml(int(index or 0)) as found:
        if found is None:
            return {**state, "nvml": "not available; pip install ctxbench[nvidia]"}
        library, handle = found
        others = [p.pid for p in library.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
        return {
            **state,
            "sm_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            "memory_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
            "temperature_c": library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
            "power_w": library.nvmlDeviceGetPowerUsage(handle) / 1000,
            "other_processes": others,
        }


def warnings(before: Mapping[str, Any], cores: int) -> list[str]:
    """Sentences for a machine that is not at rest when a measurement begins."""
    notes = []
    if before.get("other_processes"):
        notes.append(f"{len(before['other_processes'])} other process(es) compute on the GPU")
    if before["load_average"] > cores + 0.5:
        notes.append(f"the machine is busy: load average {before['load_average']:.1f} on {cores} cores")
    return notes
