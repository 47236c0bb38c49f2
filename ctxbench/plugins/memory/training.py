"""The loss that a training step starts from, and its optimizer."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.call_sites import CallSite
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.step import LOSSES, OPTIMIZERS

OPTIMIZER = CallSite(node="the optimizer")
# The learning rate, the momentum and the weight decay decide which kernels run, not what they take.
_OPTIMIZERS: tuple[Callable[..., torch.optim.Optimizer], ...] = (
    partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4),
    partial(torch.optim.AdamW, lr=0.1, weight_decay=1e-4),
)


class CrossEntropy(nn.Module):
    """A module with the loss of its output [B, classes, ...]: the mean cross entropy over all positions."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Tensor:
        scores = self.module(*inputs)
        if not isinstance(scores, Tensor):
            raise UnpredictableError(
                f"--loss cross-entropy is of one output; {type(self.module).__name__} returns {type(scores).__name__}"
            )
        labels = torch.zeros(scores.shape[:1] + scores.shape[2:], dtype=torch.long, device=scores.device)
        return functional.cross_entropy(scores, labels)


def with_loss(module: nn.Module, loss: str) -> nn.Module:
    """A module whose output's sum is the loss of this name."""
    return module if loss == LOSSES[0] else CrossEntropy(module)


def stepped(weights: Sequence[Tensor], optimizer: str, device: MemoryDevice) -> torch.optim.Optimizer:
    """An optimizer after its first step, with its state, on weights that keep the gradients of that step.

    On a GPU of today the weights are in lists, several to a kernel; others take one after the other.
    """
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    made = _OPTIMIZERS[OPTIMIZERS.index(optimizer)](weights, foreach=device == "cuda")
    made.step()
    return made
