"""`ctxbench.predict_memory`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base.errors import unknown
from ctxbench.base.mode import MODES
from ctxbench.base.number import Number
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.case import Case
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module

# What a peak is predicted for.
TARGETS = ("cuda", "cuda-2020", "cpu")


def predict_memory(
    module: "Module",
    shape: Sequence[int] | str | None = None,
    *,
    mode: str = "train",
    target: str = "cuda",
    hparams: Mapping[str, Any] | None = None,
    **conditions: Any,
) -> Result[Number]:
    """Predict the peak memory of a module's pass at an input [B, C, H, W], in bytes, and what would lower it.

    `target` is `cuda`, `cuda-2020` or `cpu`; `conditions` are `dtype`, `memory_format` and `network`. Raises UsageError
    for a wrong argument, and for a pass that cannot be predicted.
    """
    with IsolatedLoader() as loader:
        return memory_of(loader, api.case_of(module, hparams, shape=shape, **conditions), mode, target)


def memory_of(loader: IsolatedLoader, case: Case, mode: str, target: str, plot: str | None = None) -> Result[Number]:
    """Result of `predict_memory` for a case; its pass is drawn into the file `plot`."""
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if target not in TARGETS:
        raise unknown("device", target, TARGETS)
    return api.shown(loader, case, "memory", mode, target, plot)
