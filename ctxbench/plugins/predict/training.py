"""Parts of a training step beside the pass of its module: the loss that it starts from, and the optimizer's step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ctxbench.base.call_sites import CallSite
from ctxbench.meta.on_meta import on_meta
from ctxbench.plugins.memory.kernel_rules import Call
from ctxbench.plugins.memory.kernels import Device
from ctxbench.plugins.predict import LOSSES, OPTIMIZERS
from ctxbench.plugins.predict.operators import Operator, works

OPTIMIZER = CallSite(node="the optimizer")
# The learning rate, the momentum and the weight decay decide which kernels run, not how long they take.
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
        scores: Tensor = self.module(*inputs)
        labels = torch.zeros(scores.shape[:1] + scores.shape[2:], dtype=torch.long, device=scores.device)
        return functional.cross_entropy(scores, labels)


def with_loss(module: nn.Module, loss: str) -> nn.Module:
    """A module whose output's sum is the loss of this name."""
    return module if loss == LOSSES[0] else CrossEntropy(module)


def step_of(module: nn.Module, optimizer: str, device: Device = "cuda") -> list[Operator]:
    """The operators of an optimizer's step on all weights of a module, from the second step on.

    On a GPU of today the weights are in lists, several to a kernel; the PyTorch of 2020 took one after the other.
    """
    weights = [weight.requires_grad_() for weight in on_meta(module).parameters()]
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    step = _OPTIMIZERS[OPTIMIZERS.index(optimizer)](weights, foreach=device == "cuda").step
    step()
    watch = _Watch()
    with watch:
        step()
    return watch.found


class _Watch(TorchDispatchMode):
    """The operators that run while it is entered; what one writes in place is its output."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's is not typed
        self.found: list[Operator] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given, made = (tuple(leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)) for value in (args, out))
        call = Call(func, args, given, out=made)
        if call.operator.startswith("_foreach_") and not made:
            call.out = tuple(args[0])
        if kernels := works(call, ()):
            self.found.append(Operator(call.operator, "backward", OPTIMIZER, tuple(kernels)))
        return out
