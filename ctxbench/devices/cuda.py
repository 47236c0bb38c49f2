"""NVIDIA GPUs: CUDA events, the caching allocator's statistics, and NVML where `ctxbench[nvidia]` is installed."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ctxbench.base import clocks as this_machine
from ctxbench.base.garbage import collector_off
from ctxbench.devices import nvml
from ctxbench.devices.base import Device, NotMeasurable
from ctxbench.devices.clock import Clock, Step

if TYPE_CHECKING:
    import torch

GRAPH_WARM_UP_PASSES = 3
# A block's passes are queued behind a wait on the device, 0.2 ms at 2 GHz: the first kernel is there when it ends.
DELAY_CYCLES = 400_000
L2_FLUSH_BYTES = 256 * 2**20
# The device works this long before its state under load is sampled, in blocks of passes that last so long.
LOAD_S = 0.3
LOAD_BLOCK_S = 0.03


class CudaClock:
    """CUDA events around a block, on the device's current stream.

    With `flush_l2` the L2 cache is overwritten before each pass, and each has its own pair of events, so that the
    flush is not in the time.
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
        stream = self._cuda.current_stream(self._device)
        self._cuda._sleep(DELAY_CYCLES)
        with collector_off():
            for start, end in pairs:
                if self._flush is not None:
                    self._flush.zero_()
                start.record(stream)
                for _ in range(size):
                    step()
                end.record(stream)
        self._cuda.synchronize(self._device)
        return float(sum(start.elapsed_time(end) for start, end in pairs)) * 1e-3

    def now(self) -> float:
        return this_machine.here.now()

    def _event(self) -> "torch.cuda.Event":
        return self._cuda.Event(enable_timing=True)


class Cuda(Device):
    """One GPU that torch sees."""

    kind = "cuda"
    queues = True
    keeps_workspaces = True
    block_bytes = 512
    # 137 G MACs: at an H100's 67 TFLOP/s of float32 4.1 ms, with TF32 0.6 ms or more; 0.5 GiB.
    control_positions, control_width = 16384, 2048
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
        """The boards with their settings, the driver, and the variables that torch obeys; else why there is no GPU."""
        import torch

        if not torch.backends.cuda.is_built():
            return {"gpus": [], "driver": None}
        visible = _variable("CUDA_VISIBLE_DEVICES")
        found: dict[str, Any] = {"gpus": [], "driver": nvml.driver(), "cuda_visible_devices": visible}
        try:
            torch.cuda.init()  # where torch sees no GPU, this says why
            found["gpus"] = [_described(index) for index in range(torch.cuda.device_count())]
        except RuntimeError as error:
            return {**found, "cuda_error": str(error).split("\n")[0]}
        allocator = _variable("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        return {**found, "cudnn": torch.backends.cudnn.version(), "allocator_config": allocator}

    def set_flags(self, dtype: str, threads: int | None, cudnn_benchmark: bool) -> None:
        """Make this the current device, then set the flags: streams, events and handles are the current device's."""
        import torch

        torch.cuda.set_device(self._number)
        super().set_flags(dtype, threads, cudnn_benchmark)

    def clock(self, flush_l2: bool = False) -> Clock:
        return CudaClock(self.torch, flush_l2)

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self.torch)

    def release(self) -> None:
        import torch

        super().release()
        torch.cuda.synchronize(self.torch)
        torch.cuda.empty_cache()

    def free_bytes(self) -> int:
        import torch

        return int(torch.cuda.mem_get_info(self.torch)[0])

    def peak_bytes(self, run_pass: Callable[[], object]) -> int:
        """From the caching allocator's statistics; measure in a fresh process, after a pass of the same mode."""
        import torch

        device = self.torch
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
        try:
            with nvml.board(self._number) as board:
                return board.ask(nvml.STATE)
        except NotMeasurable as error:
            return {"nvml": str(error)}

    def state_under_load(self, step: Step) -> dict[str, Any]:
        """Passes run while a second thread samples: NVML's answers take longer than a full queue of small kernels."""
        clock = self.clock()
        passes = max(1, round(LOAD_BLOCK_S / max(clock.time_block(step, 1), 1e-6)))
        end = clock.now() + LOAD_S
        while clock.now() < end:
            clock.time_block(step, passes)
        with ThreadPoolExecutor(1) as pool:
            sample = pool.submit(self.state)
            while not sample.done():
                clock.time_block(step, passes)
        return {"under_load": True, **sample.result()}

    def energy_j(self) -> float:
        """From the board's counter. Raises NotMeasurable."""
        with nvml.board(self._number) as board:
            return board.energy_j()

    @property
    def _number(self) -> int:
        """torch's number of the device; each process begins with 0 as the current one."""
        return self.index or 0

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


def _described(index: int) -> dict[str, Any]:
    """Description of a GPU for a run: properties by torch, and settings by NVML."""
    import torch

    p = torch.cuda.get_device_properties(index)
    facts = {"name": p.name, "memory_bytes": p.total_memory, "capability": f"{p.major}.{p.minor}"}
    try:
        with nvml.board(index) as board:
            settings = board.ask(nvml.SETTINGS)
    except NotMeasurable as error:
        settings = {"nvml": str(error)}
    return {**facts, "uuid": nvml.uuid(index), **settings}


def _variable(*names: str) -> str | None:
    """The first of these environment variables that is set."""
    return next((os.environ[name] for name in names if name in os.environ), None)
