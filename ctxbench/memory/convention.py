"""The convention behind every memory figure, predicted or measured: what is run, what is counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

Mode = Literal["train", "infer"]

CONVENTION = (
    "weights (parameters and buffers) counted, input not counted, output kept alive; "
    "train: forward, y.sum().backward(), first step, no earlier gradients; infer: forward under no_grad"
)


class UnpredictableError(RuntimeError):
    """A module whose peak memory cannot be stated honestly; the text says why and what to do."""


def weight_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, a shared one once."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def check_mode(mode: str) -> None:
    """ValueError for anything but train and infer."""
    if mode not in ("train", "infer"):
        raise ValueError(f"mode is {mode!r}; it must be 'train' or 'infer'")


@contextmanager
def prepared(module: nn.Module, mode: Mode) -> Iterator[None]:
    """Put the module into the mode without gradients; restore the training flags and drop the gradients after."""
    flags = [(child, child.training) for child in module.modules()]
    module.train(mode == "train")
    module.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        for child, training in flags:
            child.training = training
        module.zero_grad(set_to_none=True)


def forward(module: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> torch.Tensor:
    """One forward pass; UnpredictableError unless it gives one tensor, with a gradient in train."""
    with torch.set_grad_enabled(mode == "train"):
        output = module(*inputs)
    name = type(module).__name__
    if not isinstance(output, torch.Tensor):
        raise UnpredictableError(
            f"{name} returns a {type(output).__name__}; the convention needs one tensor, wrap the module"
        )
    if mode == "train" and not output.requires_grad:
        raise UnpredictableError(
            f"the output of {name} depends on nothing that has a gradient, so there is no training step to measure"
        )
    return output


def backward(output: torch.Tensor) -> None:
    """The backward pass from the sum of the output."""
    output.sum().backward()
