"""The state of the machine around a measurement: clocks, temperature, load, and who else computes on the device."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

WINDOW_S = 0.1
# Others' load, in cores, from which a measurement is warned of.
BUSY = 0.5


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
    """The device now: on CUDA its clocks (MHz), temperature (C), power (W) and other processes; nothing on the CPU."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return {}
    with nvml(int(index or 0)) as found:
        if found is None:
            return {"nvml": "not available; pip install ctxbench[nvidia]"}
        library, handle = found
        others = [p.pid for p in library.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
        return {
            "sm_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            "memory_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
            "temperature_c": library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
            "power_w": library.nvmlDeviceGetPowerUsage(handle) / 1000,
            "other_processes": others,
        }


def busy_cores() -> float | None:
    """How many cores were at work over a tenth of a second, from the kernel's own count; None where it has none.

    Call while this process is idle.
    """
    try:
        before = _busy_ticks()
        time.sleep(WINDOW_S)
        return round((_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / WINDOW_S, 2)
    except OSError:
        return None


def _busy_ticks() -> int:
    """Clock ticks of all cores since boot that were neither idle nor waiting for a disk."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4]


def warnings(before: Mapping[str, Any]) -> list[str]:
    """Sentences for a machine that is not at rest when a measurement begins."""
    notes = []
    if before.get("other_processes"):
        notes.append(f"{len(before['other_processes'])} other process(es) compute on the GPU")
    if (before["busy_cores"] or 0) > BUSY:
        notes.append(f"the machine was not at rest: others kept {before['busy_cores']:.1f} cores busy")
    return notes
