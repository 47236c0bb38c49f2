"""The operators of an optimizer's step."""

from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ctxbench.meta.on_meta import on_meta
from ctxbench.plugins.memory.kernel_rules import Call
from ctxbench.plugins.memory.kernels import Device
from ctxbench.plugins.memory.training import OPTIMIZER, stepped
from ctxbench.plugins.predict.operators import Operator, works


def step_of(module: nn.Module, optimizer: str, device: Device = "cuda") -> list[Operator]:
    """The operators of an optimizer's step on all weights of a module, from the second step on."""
    weights = [weight.requires_grad_() for weight in on_meta(module).parameters()]
    if not weights:
        return []
    made = stepped(weights, optimizer, device)
    watch = _Watch()
    with watch:
        made.step()
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
