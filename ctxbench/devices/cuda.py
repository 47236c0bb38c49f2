"""NVIDIA GPUs: CUDA events, the caching allocator's statistics, and NVML where `ctxbench[nvidia]` is installed."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ctxbench.devices.base import Device, NotMeasurable
from ctxbench.devices.clock import Clock, Step
from ctxbench.garbage import collector_off

if TYPE_CHECKING:
    import torch

GRAPH_WARM_UP_PASSES = 3
# A block's passes are queued behind a wait on the device, 0.2 ms at 2 GHz: the first kernel is there when it ends.
DELAY_CYCLES = 400_000
L2_FLUSH_BYTES = 256 * 2**20


class CudaClock:
    """CUDA events around a block on the current stream; optionally the L2 cache is overwritten before each pass.

    With the flush, each pass has its own pair of events, so that the flush is not in the time.
    """

    def __init__(self, device: "torch.device", flush_l2: bool = False) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._flush = torch.empty(L2_FLUSH_BYTES, dtype=torch.int8, device=device) if flush_l2 else None

    def time_block(self, step: Step, passes: int) -> float:
        groups, size = (passes, 1) if self._flush is not None else (1, passes)
        pairs = [(self._event(), self._event()) for _ in range(groups)]
        self._cuda.synchronize(self._device)
        self._cuda._sleep(DELAY_CYCLES)
        with collector_off():
            for start, end in pairs:
                if self._flush is not None:
                    self._flush.zero_()
                start.record()
                for _ in range(size):
                    step()
                end.record()
        self._cuda.synchronize(self._device)
        return float(sum(start.elapsed_time(end) for start, end in pairs)) * 1e-3

    def now(self) -> float:
        return time.monotonic()

    def _event(self) -> "torch.cuda.Event":
        return self._cuda.Event(enable_timing=True)


class Cuda(Device):
    """One GPU that torch sees."""

    kind = "cuda"
    matmul_size = 8192

    @classmethod
    def count(cls, environment: Mapping[str, Any]) -> int:
        return len(environment.get("gpus") or ())

    def product(self, environment: Mapping[str, Any]) -> str | None:
        gpus = environment.get("gpus") or ()
        return str(gpus[self.index or 0]["name"]) if (self.index or 0) < len(gpus) else None

    def described(self, environment: Mapping[str, Any]) -> list[str]:
        return [*super().described(environment), f"driver {environment['driver']}"]

    @classmethod
    def fingerprint(cls) -> dict[str, Any]:
        import torch

        if not torch.cuda.is_available():
            return {"gpus": [], "driver": None}
        properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        return {
            "gpus": [
                {"name": p.name, "memory_bytes": p.total_memory, "capability": f"{p.major}.{p.minor}"}
                for p in properties
            ],
            "driver": _driver(),
            "cudnn": torch.backends.cudnn.version(),
        }

    def clock(self, flush_l2: bool = False) -> Clock:
        return CudaClock(self.torch, flush_l2)

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self.torch)

    def free_bytes(self) -> int:
        import torch

        return int(torch.cuda.mem_get_info(self.torch)[0])

    def peak_bytes(self, run_pass: Callable[[], object]) -> int:
        """From the caching allocator's statistics, cuBLAS warmed first; measure in a fresh process."""
        import torch

        device = self.torch
        square = torch.ones(1, 8, 8, device=device)
        torch.bmm(square, square)  # cuBLAS keeps the workspace that its first product allocates
        del square
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        output = run_pass()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device)
        del output
        return int(peak - before)

    def state(self) -> dict[str, Any]:
        with self._nvml() as found:
            if found is None:
                return {"nvml": "not available; pip install nvidia-ml-py"}
            library, handle = found
            others = [p.pid for p in library.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
            return {
                "sm_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
                "memory_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
                "temperature_c": library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
                "power_w": library.nvmlDeviceGetPowerUsage(handle) / 1000,
                "other_processes": others,
            }

    def energy_j(self) -> float:
        """From the board's counter, which Volta and later have."""
        with self._nvml() as found:
            if found is None:
                raise NotMeasurable("energy needs NVML: pip install nvidia-ml-py")
            library, handle = found
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000

    @contextmanager
    def _nvml(self) -> Iterator[tuple[Any, Any] | None]:
        """NVML and the handle of this GPU; None without the extra `[nvidia]` or without a driver."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:
            yield None
            return
        try:
            yield pynvml, pynvml.nvmlDeviceGetHandleByIndex(_physical(self.index or 0))
        finally:
            pynvml.nvmlShutdown()

    queues = True

    def requested_bytes(self) -> tuple[int, int] | None:
        import torch

        counts = torch.cuda.memory_stats(self.torch)
        names = ("requested_bytes.all.current", "requested_bytes.all.peak")
        if not all(name in counts for name in names):  # cudaMallocAsync has no such count
            return None
        now, peak = (int(counts[name]) for name in names)
        return now, peak

    def captured(self, step: Step) -> Step:
        """The graph of one pass, captured after passes on a side stream that let libraries allocate and choose."""
        import torch

        side, main = torch.cuda.Stream(self.torch), torch.cuda.current_stream(self.torch)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(GRAPH_WARM_UP_PASSES):
                step()
        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = step()

        def replay() -> object:
            graph.replay()
            return output

        return replay


def _physical(index: int) -> int:
    """NVML counts all GPUs; torch counts those that CUDA_VISIBLE_DEVICES leaves."""
    visible = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.isdigit()]
    return int(visible[index]) if index < len(visible) else index


def _driver() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return None
