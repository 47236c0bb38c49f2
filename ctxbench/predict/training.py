"""What a training step has beside the pass of its module: the loss that it starts from, and the optimizer's step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ctxbench.memory.kernel_rules import Call
from ctxbench.memory.kernels import Device
from ctxbench.on_meta import on_meta
from ctxbench.predict.operators import Operator, works

# The learning rate, the momentum and the weight decay decide which kernels run, not how long they take.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda weights, **how: torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=1e-4, **how),
    "adamw": lambda weights, **how: torch.optim.AdamW(weights, lr=0.1, weight_decay=1e-4, **how),
}


class CrossEntropy(nn.Module):
    """A module with the loss of its output [B, classes, ...]: the mean cross entropy over all positions."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Tensor:
        scores: Tensor = self.module(*inputs)
        labels = torch.zeros(scores.shape[:1] + scores.shape[2:], dtype=torch.long, device=scores.device)
        return functional.cross_entropy(scores, labels)


LOSSES: dict[str, Callable[[nn.Module], nn.Module]] = {"sum": lambda module: module, "cross-entropy": CrossEntropy}


def step_of(module: nn.Module, optimizer: str, device: Device = "cuda") -> list[Operator]:
    """The operators of an optimizer's step on all weights of a module, from the second step on.

    On a GPU of today the weights are in lists, several to a kernel; the PyTorch of 2020 took one after the other.
    """
    weights = [weight.requires_grad_() for weight in on_meta(module).parameters()]
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    step = OPTIMIZERS[optimizer](weights, foreach=device == "cuda").step
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
        call = Call(func, args, kwargs or {}, given, out=made)
        if call.operator.startswith("_foreach_") and not made:
            call.out = tuple(args[0])
        if kernels := works(call, ()):
            self.found.append(Operator(call.operator, "step", "the optimizer", tuple(kernels)))
        return out
