"""Requirements on the output of a first pass, before passes are timed."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note
from ctxbench.meta.outputs import tensors_of
from ctxbench.model.case import Case
from ctxbench.model.dtype_names import dtypes
from ctxbench.model.failures import NotFinite


def check_type(y: Any, case: Case) -> None:
    """Raise TypeError for anything but one tensor."""
    if not isinstance(y, Tensor):
        what, kind = (case.title, "network in a runtime") if case.network else (case.entry.key, "context module")
        raise TypeError(f"{what} returns {type(y).__name__}; a {kind} returns one tensor")


def check_output(y: Any, x: Tensor, case: Case, mode: Mode, model: nn.Module, is_block: bool) -> Iterator[Note]:
    """Notes on an output; raises what is wrong with it, or with the gradients that a training step has left.

    That of a block is one tensor with the height and the width of its input.
    """
    batch, _, height, width = case.shape
    if is_block:
        check_type(y, case)
        entry = case.entry
        width_of_output = entry.output_width(case.shape, case.hparams)
        kept = (*y.shape[:1], *y.shape[2:]) == (batch, height, width)
        if not kept or width_of_output not in (None, y.shape[1]):
            raise ValueError(f"{entry.key} returns shape {list(y.shape)} for {list(case.shape)}")
        if y.dtype != x.dtype and case.autocast_dtype is None:
            yield Note("changes_dtype", {"dtypes": dtypes(x, y)})
    if not tensors_of(y):
        raise TypeError(f"{case.title} returns {type(y).__name__}; a network returns tensors")
    if not all(torch.isfinite(each).all() for each in tensors_of(y)):
        raise NotFinite(f"the output of the {mode} pass holds NaN or infinity")
    for name, parameter in model.named_parameters() if mode == "train" else ():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            raise NotFinite(f"the gradient of {name} holds NaN or infinity")


def at_one_position(y: Any) -> Tensor:
    """A copy of an output's `[C]` at the first position of the first image; a network's may have no positions."""
    first = tensors_of(y)[0].detach()
    found: Tensor = first[0].flatten(1)[:, 0] if first.dim() > 2 else first[:1]
    return found.clone()
