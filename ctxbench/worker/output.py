"""Requirements on the output of a first pass, before passes are timed."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note
from ctxbench.model.case import Case
from ctxbench.model.dtype_names import dtypes
from ctxbench.model.failures import NotFinite


def check_type(y: Any, case: Case) -> None:
    """Raise TypeError for anything but one tensor."""
    if not isinstance(y, Tensor):
        what, kind = (case.title, "network") if case.network else (case.entry.key, "context module")
        raise TypeError(f"{what} returns {type(y).__name__}; a {kind} returns one tensor")


def check_output(y: Any, x: Tensor, case: Case, mode: Mode, model: nn.Module) -> Iterator[Note]:
    """Notes on an output; raises what is wrong with it, or with the gradients that a training step has left."""
    check_type(y, case)
    batch, _, height, width = case.shape
    if not case.network:
        entry = case.entry
        if y.shape != (batch, entry.closed_form("out_channels", case.shape, case.hparams), height, width):
            raise ValueError(f"{entry.key} returns shape {list(y.shape)} for {list(case.shape)}")
        if y.dtype != x.dtype and case.autocast_dtype is None:
            yield Note("changes_dtype", {"dtypes": dtypes(x, y)})
    if not torch.isfinite(y).all():
        raise NotFinite(f"the output of the {mode} pass holds NaN or infinity")
    for name, parameter in model.named_parameters() if mode == "train" else ():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            raise NotFinite(f"the gradient of {name} holds NaN or infinity")


def at_one_position(y: Any) -> Tensor:
    """A copy of an output's `[C]` at the first position of the first image; a network's may have no positions."""
    found: Tensor = y[0].detach().flatten(1)[:, 0].clone() if y.dim() > 2 else y[0].detach().clone()
    return found
