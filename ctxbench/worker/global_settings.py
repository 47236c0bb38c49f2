"""Global settings that a module may change in its process."""

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import torch

THREADS = "torch.get_num_threads"
# torch.get_float32_matmul_precision raises where these differ from each other.
PRECISIONS = tuple(
    f"torch.backends.{backend}.fp32_precision" for backend in ("cuda.matmul", "cudnn.conv", "mkldnn.matmul")
)


def _flushes_denormals() -> bool:
    """Return whether a number too small to have all its digits becomes 0, which PyTorch does not say."""
    least = torch.full((), 5e-324, dtype=torch.float64, device="cpu")
    return (least * 1).item() == 0


SETTINGS: dict[str, Callable[[], Any]] = {
    THREADS: torch.get_num_threads,
    "torch.get_default_dtype": torch.get_default_dtype,
    "torch.get_default_device": torch.get_default_device,
    "torch.is_grad_enabled": torch.is_grad_enabled,
    "torch.is_anomaly_enabled": torch.is_anomaly_enabled,
    "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
    "torch.is_autocast_enabled": lambda: [each for each in ("cpu", "cuda") if torch.is_autocast_enabled(each)],
    "torch.set_flush_denormal": _flushes_denormals,
    **{name: partial(attrgetter(name.removeprefix("torch.")), torch) for name in PRECISIONS},
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "torch.backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "torch.backends.mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
}
# What the dtype and the measuring settings of a case decide.
DECIDED = (*PRECISIONS, "torch.backends.cudnn.benchmark")


def settings() -> dict[str, Any]:
    """All of them as they are now."""
    return {name: read() for name, read in SETTINGS.items()}


def changed(before: Mapping[str, Any]) -> list[str]:
    """Changed settings, as `torch.get_num_threads changes from 1 to 2`."""
    now = settings()
    return [f"{name} changes from {value} to {now[name]}" for name, value in before.items() if value != now[name]]
