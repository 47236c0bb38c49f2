"""NVML: what an NVIDIA board tells of itself, each value by itself. The extra `[nvidia]` installs its library.

Boards, MIG, virtual GPUs and containers each lack other values: what is not told is listed with the reason.
"""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ctxbench.devices.base import NotMeasurable

# The bits of NVML's clock event reasons.
REASONS = {
    0x001: "idle",
    0x002: "application clocks setting",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clocks setting",
    0x200: "board limit",
    0x400: "reliability",
}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
NO_UUID = "by its index, which may be another board's: torch does not tell the UUID"


def _throttle_reasons(nvml: Any, handle: Any) -> list[str]:
    """Reasons for clocks below their maximum, in words."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except Exception:  # an older driver or library has it under its former name
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [REASONS.get(1 << at, hex(1 << at)) for at in range(bits.bit_length()) if bits >> at & 1]


def _other_processes(nvml: Any, handle: Any) -> list[int]:
    """The processes that compute on the board, but for this one, its ancestors and its children.

    Raises NotMeasurable if the numbers are not those of this process's namespace, as in a container.
    """
    import psutil
    import torch

    listed = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    missing = torch.cuda.is_initialized() and os.getpid() not in listed
    if missing or not all(psutil.pid_exists(pid) for pid in listed):
        raise NotMeasurable("NVML's process numbers are not those of this container")
    here = psutil.Process()
    own = {process.pid for process in (here, *here.parents(), *here.children(recursive=True))}
    return sorted(listed - own)


NvmlFact = Callable[[Any, Any], Any]
# Each is asked with the library and the handle of the board.
STATE: dict[str, NvmlFact] = {
    "sm_clock_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    "sm_clock_max_mhz": lambda nvml, handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
    "sm_clock_application_mhz": lambda nvml, handle: nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
    "memory_clock_max_mhz": lambda nvml, handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
    "throttle_reasons": _throttle_reasons,
    "temperature_c": lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    "power_w": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "power_limit_w": lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
    "other_processes": _other_processes,
}
SETTINGS: dict[str, NvmlFact] = {
    "power_limit_w": STATE["power_limit_w"],
    "persistence_mode": lambda nvml, handle: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
    "compute_mode": lambda nvml, handle: COMPUTE_MODES[nvml.nvmlDeviceGetComputeMode(handle)],
    "mig_mode": lambda nvml, handle: bool(
        nvml.nvmlDeviceIsMigDeviceHandle(handle) or nvml.nvmlDeviceGetMigMode(handle)[0]
    ),
}


class Board:
    """One board, or one MIG instance of it; `found` says how, where that is uncertain."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.nvml = nvml
        self.handle, self.found = _handle(nvml, index)

    def ask(self, values: Mapping[str, NvmlFact]) -> dict[str, Any]:
        """The values that the board tells; the reasons of the others under `unknown`."""
        answers: dict[str, Any] = {"found": self.found} if self.found else {}
        unknown: dict[str, str] = {}
        for name, value in values.items():
            try:
                answers[name] = value(self.nvml, self.handle)
            except Exception as error:  # NVML's own errors, or a function that this library lacks
                unknown[name] = reason(error)
        return {**answers, "unknown": unknown} if unknown else answers

    def energy_j(self) -> float:
        """Joules since the driver was loaded, which Volta and later count. Raises NotMeasurable."""
        if self.ask(SETTINGS).get("mig_mode"):
            raise NotMeasurable("a GPU in MIG mode counts the energy of all its instances together")
        try:
            return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000
        except Exception as error:
            raise NotMeasurable(f"the GPU does not tell its energy: {reason(error)}") from None


@contextmanager
def board(index: int) -> Iterator[Board]:
    """The board behind torch's `cuda:<index>`. Raises NotMeasurable without the library, a driver or the board."""
    with _library() as nvml:
        try:
            found = Board(nvml, index)
        except Exception as error:
            raise NotMeasurable(f"NVML does not find the GPU: {reason(error)}") from None
        yield found


@contextmanager
def _library() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError:
        raise NotMeasurable("NVML is not available; pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except Exception as error:
        raise NotMeasurable(f"NVML does not answer: {reason(error)}") from None
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def uuid(index: int) -> str | None:
    """The UUID that torch tells of `cuda:<index>`, without NVML's prefix; None if torch cannot."""
    import torch

    try:
        return str(torch.cuda.get_device_properties(index).uuid)
    except (AssertionError, AttributeError, RuntimeError):  # no CUDA in this torch, or a driver that fails
        return None


def driver() -> str | None:
    """The version of NVIDIA's driver; None if none answers."""
    try:
        with _library() as nvml:
            return str(nvml.nvmlSystemGetDriverVersion())
    except Exception:  # no library, or one without an answer: the driver has a command of its own
        return _driver_of_command()


def reason(error: Exception) -> str:
    """Reason for a missing value, such as `NotSupported`."""
    name = type(error).__name__
    return name.removeprefix("NVMLError_") if name.startswith("NVMLError_") else str(error) or name


def _handle(nvml: Any, index: int) -> tuple[Any, str]:
    """The handle of torch's `cuda:<index>`, and how it was found if not by torch's UUID.

    NVML counts all boards in the order of their slots; torch counts those of CUDA_VISIBLE_DEVICES in another order.
    """
    known = uuid(index)
    if known is not None:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{known}"), ""
        except Exception:  # a MIG instance has the other prefix
            return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{known}"), ""
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    entry = visible[index] if index < len(visible) else ""
    if entry.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(entry), "by CUDA_VISIBLE_DEVICES: torch does not tell the UUID"
    return nvml.nvmlDeviceGetHandleByIndex(int(entry) if entry.isdigit() else index), NO_UUID


def _driver_of_command() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
