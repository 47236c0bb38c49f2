"""Interface of a kind of device."""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ctxbench.base.dtypes import TF32, TF32_CONVOLUTIONS
from ctxbench.devices.clock import Clock, Step

if TYPE_CHECKING:
    import torch


class NotMeasurable(NotImplementedError):
    """This device, driver or installation does not tell the quantity; the text says why."""


class Unsupported(Exception):
    """The case asks for what the device or this torch does not offer."""


class Device(ABC):
    """One device: `index` None is the current one of its kind."""

    kind: ClassVar[str]
    # The control workload is softmax(x w) w^T with x [control_positions, control_width], w [control_width] * 2.
    control_positions: ClassVar[int]
    control_width: ClassVar[int]
    # Side of the square matrix product that the rate is taken from.
    matmul_size: ClassVar[int]
    # Whether passes wait in a queue, so that a single one is timed with the time to start it.
    queues: ClassVar[bool] = False
    # Whether its libraries keep the workspaces that their first calls allocate.
    keeps_workspaces: ClassVar[bool] = False
    # The size that its allocator gives multiples of.
    block_bytes: ClassVar[int] = 1
    # Whether torch's thread count decides how fast it is.
    has_threads: ClassVar[bool] = False

    def __init__(self, index: int | None = None) -> None:
        self.index = index

    @classmethod
    def in_blocks(cls, size: int) -> int:
        """The bytes of the whole blocks that a request of `size` bytes takes."""
        return -(-size // cls.block_bytes) * cls.block_bytes

    @property
    def name(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"

    @property
    def torch(self) -> "torch.device":
        """torch's own name for it."""
        import torch

        return torch.device(self.name)

    @classmethod
    @abstractmethod
    def count(cls, environment: Mapping[str, Any]) -> int:
        """Number of devices of this kind in an environment."""

    @abstractmethod
    def product(self, environment: Mapping[str, Any]) -> str | None:
        """The name under which the device is sold, as far as an environment tells."""

    def described(self, environment: Mapping[str, Any]) -> list[str]:
        """Description beside a latency: the product, and the software that drives it."""
        return [self.product(environment) or self.name]

    @classmethod
    @abstractmethod
    def fingerprint(cls) -> dict[str, Any]:
        """Fingerprint of the devices of this kind and their software, for `run.json`."""

    def set_flags(self, dtype: str, threads: int | None, cudnn_benchmark: bool) -> None:
        """Make explicit what torch would choose by itself. Raises Unsupported for a dtype that it does not have."""
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        # Whatever a module's file has set: each backend's own precision, after what they would inherit. By `set_flags`,
        # since the attributes cannot be set once a file has imported `torch.testing._internal`.
        backends: Any = torch.backends
        for backend in (backends, backends.cudnn, backends.mkldnn):
            backend.set_flags(_fp32_precision="none")
        torch.set_float32_matmul_precision("high" if dtype == TF32 else "highest")
        tf32 = dtype in (TF32, TF32_CONVOLUTIONS)
        backends.cudnn.set_flags(_allow_tf32=tf32, _benchmark=cudnn_benchmark, _fp32_precision=None)

    def flags(self) -> dict[str, Any]:
        """The flags as they are now, read back from torch."""
        import torch

        convolutions: Any = torch.backends.cudnn
        return {
            "threads": torch.get_num_threads(),
            "tf32_matmul": torch.backends.cuda.matmul.fp32_precision == "tf32",
            "tf32_cudnn": convolutions.conv.fp32_precision == "tf32",
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }

    @abstractmethod
    def clock(self, flush_l2: bool = False) -> Clock:
        """A clock for blocks of passes; with `flush_l2` the cache is overwritten before each pass."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""

    def release(self) -> None:
        """Give back what a case has left: cycles of objects, and memory that torch keeps for later tensors."""
        gc.collect()

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that a process could still allocate."""

    @abstractmethod
    def peak_bytes(self, run_pass: Callable[[], object]) -> int:
        """The peak of what one pass allocates, above what is allocated before it."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The device now: clocks (MHz), why they are low, temperature (C), power (W), other processes.

        A value that it does not tell is left out, with the reason under `unknown`.
        """

    def state_under_load(self, step: Step) -> dict[str, Any]:
        """The state while passes run; `under_load` is true where the device tells anything."""
        return self.state()

    @abstractmethod
    def energy_j(self) -> float:
        """Joules used since some moment in the past. Raises NotMeasurable."""

    def control_workload(self) -> Step:
        """A pass of what context modules are made of: a product, a softmax, a product; float32, no gradients."""
        import torch

        device, width = self.torch, self.control_width
        generator = torch.Generator(device).manual_seed(0)
        x = torch.randn(self.control_positions, width, generator=generator, device=device)
        w = torch.randn(width, width, generator=generator, device=device)

        def step() -> "torch.Tensor":
            with torch.inference_mode():
                return torch.softmax(x @ w, dim=-1) @ w.T

        return step

    def requested_bytes(self) -> tuple[int, int] | None:
        """Bytes requested of the allocator: now, and at the peak since `peak_bytes` began; None: not counted."""
        return None

    def captured(self, step: Step) -> Step:
        """A pass that replays what the device does in `step`, without the host. Raises Unsupported."""
        raise Unsupported(f"execution 'graph' replays a CUDA graph, and {self.name} is no CUDA device")
