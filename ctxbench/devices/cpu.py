"""The CPU: this machine's clock, the allocation events of torch.profiler, the memory that the system could give."""

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctxbench.base import clocks as this_machine
from ctxbench.base import disk
from ctxbench.base.dtypes import TF32, TF32_CONVOLUTIONS
from ctxbench.base.errors import UsageError
from ctxbench.devices.base import Device, NotMeasurable, Unsupported
from ctxbench.devices.clock import Clock

# Instruction sets on which the kernel that PyTorch or oneDNN takes depends, by how their names begin.
INSTRUCTIONS = ("avx", "amx", "neon", "asimd", "sve", "sme", "bf16", "fp16", "i8mm")


class Cpu(Device):
    """All cores of this machine that the process may use."""

    kind = "cpu"
    # 134 M MACs.
    control_positions, control_width = 1024, 256
    matmul_size = 1024
    has_threads = True

    @classmethod
    def count(cls, environment: Mapping[str, Any]) -> int:
        return 1

    def product(self, environment: Mapping[str, Any]) -> str | None:
        name = environment.get("cpu")
        return f"{name} ({environment.get('cpu_usable', '?')} cores)" if name else None

    def described(self, environment: Mapping[str, Any]) -> list[str]:
        return [environment["cpu"]]

    @classmethod
    def fingerprint(cls) -> dict[str, Any]:
        import psutil
        import torch

        return {
            "cpu": _model(),
            "cpu_count": os.cpu_count(),
            "cpu_usable": len(this_machine.usable_cores()),
            "memory_bytes": psutil.virtual_memory().total,
            "torch_threads": torch.get_num_threads(),
            "malloc": {name: value for name, value in sorted(os.environ.items()) if name.startswith("MALLOC_")},
            "blas": "mkl" if torch.backends.mkl.is_available() else "other",
            "onednn": torch.backends.mkldnn.is_available(),
            **instruction_sets(),
        }

    def set_flags(self, dtype: str, threads: int | None, cudnn_benchmark: bool) -> None:
        if dtype in (TF32, TF32_CONVOLUTIONS):
            raise Unsupported("tf32 exists on CUDA devices only")
        super().set_flags(dtype, threads, cudnn_benchmark)

    def clock(self, flush_l2: bool = False) -> Clock:
        return this_machine.here

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int:
        import psutil

        return int(psutil.virtual_memory().available)

    def peak_bytes(self, run_pass: Callable[[], object]) -> int:
        """From the profiler's allocation events; what libraries take past PyTorch's allocator is not in them."""
        import torch

        with quiet_kineto(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
            output = run_pass()
        del output
        events = profiler.kineto_results.events()  # the only place where the events stand one by one
        changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
        live = peak = 0
        for _, size in sorted(changes, key=lambda change: change[0]):
            live += size
            peak = max(peak, live)
        return peak

    def state(self) -> dict[str, Any]:
        return {}

    def energy_j(self) -> float:
        raise NotMeasurable("energy is read from NVIDIA GPUs only")


def instruction_sets() -> dict[str, Any]:
    """Processor features available to PyTorch's kernels: its instruction sets, oneDNN's version, and caps on both."""
    import torch

    has = torch.cpu.get_capabilities()
    onednn = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
    return {
        "architecture": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "instruction_sets": sorted(name for name in has if name.startswith(INSTRUCTIONS) and has[name] is True),
        "onednn_version": onednn[1] if onednn else None,
        "onednn_max_isa": os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA"),
    }


def processor() -> str:
    """The same in words, with the threads."""
    import torch

    found, threads = instruction_sets(), torch.get_num_threads()
    cap = found["onednn_max_isa"]
    parts = [
        f"{threads} thread{'s' * (threads > 1)}",
        f"{found['architecture']} with {found['cpu_capability']}",
        f"oneDNN {found['onednn_version']}{f' up to {cap}' if cap else ''}" if found["onednn_version"] else "no oneDNN",
    ]
    return ", ".join(parts)


@contextmanager
def quiet_kineto() -> Iterator[None]:
    """Keep the profiler's library from printing its start and stop to the terminal."""
    level = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        if level is None:
            os.environ.pop("KINETO_LOG_LEVEL", None)  # the module may have cleared it
        else:
            os.environ["KINETO_LOG_LEVEL"] = level


def _model() -> str:
    try:
        for line in disk.read_text(Path("/proc/cpuinfo")).splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except UsageError:
        pass
    return platform.processor() or "unknown"
