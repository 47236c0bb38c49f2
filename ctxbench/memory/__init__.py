"""Peak memory of a module: predicted on the meta device, measured on its own device, explained."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctxbench.memory.convention import CONVENTION, UnpredictableError
from ctxbench.memory.profile import Allocation, MemoryProfile, Step

if TYPE_CHECKING:
    from ctxbench.memory.measure import measure_peak
    from ctxbench.memory.predict import predict_peak
    from ctxbench.memory.remedy import Remedy, remedies

__all__ = [
    "CONVENTION",
    "Allocation",
    "MemoryProfile",
    "Remedy",
    "Step",
    "UnpredictableError",
    "measure_peak",
    "predict_peak",
    "remedies",
]

_NEED_TORCH = {"Remedy": "remedy", "remedies": "remedy", "measure_peak": "measure", "predict_peak": "predict"}


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use, so that the convention and the profile's types load without it."""
    if name in _NEED_TORCH:
        return getattr(import_module(f"ctxbench.memory.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module 'ctxbench.memory' has no attribute {name!r}")
