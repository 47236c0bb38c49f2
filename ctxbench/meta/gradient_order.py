"""Normalisations whose backward reads a gradient in another order than it has, as PyTorch may on a CPU."""

from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor

from ctxbench.base.notes import Note
from ctxbench.meta.calls import RecordedCall

WAY_OUT = "hand the norm's output on as `y.flatten(1).view_as(y)`: then its gradient arrives contiguous"
_BACKWARD = torch.ops.aten.native_batch_norm_backward.default  # of instance normalisation, too
# Relative: gradients that differ by less are the same.
SAME = 1e-3


def misread(calls: Iterable[RecordedCall]) -> list[Note]:
    """A note for a reader of a module's numbers if a batch norm of a backward pass gives a wrong gradient on this CPU.

    The operator is tried on drawn tensors whose strides are those of the pass, which may be without data.
    """
    for each in calls:
        if each.name == _BACKWARD.name():
            gradient, x, training = (each.operation.args[at] for at in (0, 1, 7))
            if misreads(x.shape, gradient.strides, x.strides, training):
                return [Note("misread_gradient", {"torch": torch.__version__, "way_out": WAY_OUT})]
    return []


@cache
def misreads(shape: tuple[int, ...], of_gradient: tuple[int, ...], of_input: tuple[int, ...], training: bool) -> bool:
    """Return whether PyTorch's backward on this CPU gives another gradient for these strides than for contiguous ones.

    `shape` is [B, C, ...], of the input and of the gradient, which are float32.
    """
    if of_gradient == of_input:
        return False
    gradient, x = (_drawn(shape, strides, seed) for seed, strides in enumerate((of_gradient, of_input)))
    zeros, ones = (torch.full(shape[1:2], value, device="cpu") for value in (0.0, 1.0))
    rest = (ones, zeros, ones, zeros, ones, training, 1e-5, (True, False, False))
    found, right = (_BACKWARD(*each, *rest)[0] for each in ((gradient, x), (gradient.contiguous(), x.contiguous())))
    return bool((found - right).norm() > SAME * right.norm())


def _drawn(shape: tuple[int, ...], strides: tuple[int, ...], seed: int) -> Tensor:
    numbers = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(numbers, generator=generator, device="cpu").as_strided(shape, strides)
