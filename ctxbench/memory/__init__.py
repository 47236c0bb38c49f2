"""Peak memory of a module: predicted on the meta device, measured on its own, explained."""

from ctxbench.memory.convention import CONVENTION, Mode, UnpredictableError
from ctxbench.memory.explain import Remedy, remedies
from ctxbench.memory.measure import measure_peak
from ctxbench.memory.predict import predict_peak
from ctxbench.memory.profile import Allocation, MemoryProfile, Step

__all__ = [
    "CONVENTION",
    "Allocation",
    "MemoryProfile",
    "Mode",
    "Remedy",
    "Step",
    "UnpredictableError",
    "measure_peak",
    "predict_peak",
    "remedies",
]
