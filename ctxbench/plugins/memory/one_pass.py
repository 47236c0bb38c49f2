"""One pass of a module under the memory convention: its mode, its forward and its backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ctxbench.base.mode import MODES, Mode
from ctxbench.meta.outputs import loss_of, tensors_of, trained
from ctxbench.plugins.memory.convention import UnpredictableError


def weight_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, a shared one once."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def check_mode(mode: str) -> None:
    """ValueError for anything but train and infer."""
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; it must be 'train' or 'infer'")


@contextmanager
def prepared(module: nn.Module, mode: Mode) -> Iterator[None]:
    """Put the module into the mode, without gradients; then restore the training flags and remove the gradients."""
    flags = [(child, child.training) for child in module.modules()]
    module.train(mode == "train")
    module.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        for child, training in flags:
            child.training = training
        module.zero_grad(set_to_none=True)


def run_pass(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> Any:
    """One pass under the convention; the caller keeps the output."""
    output = forward(module, inputs, mode)
    if mode == "train":
        backward(output)
    return output


def forward(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> Any:
    """One forward pass; UnpredictableError unless it returns tensors, in train at least one with a gradient."""
    with torch.set_grad_enabled(mode == "train"):
        output = module(*inputs)
    name = type(module).__name__
    if not tensors_of(output):
        raise UnpredictableError(
            f"{name} returns {type(output).__name__}; it must return tensors, alone or in a tuple, a list or a dict"
        )
    if mode == "train" and not trained(output):
        raise UnpredictableError(
            f"the output of {name} depends on nothing that has a gradient, so there is no training step to measure"
        )
    return output


def backward(output: Any) -> None:
    """The backward pass from the sum of the output, of all tensors of it."""
    loss_of(output).backward()
