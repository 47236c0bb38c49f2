"""Counts of a pass on numbers, for a module whose pass depends on them, which meta cannot run."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.base.mode import Mode
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.counter import repeatable
from ctxbench.plugins.macs.rules import OTHERS, PRODUCTS
from ctxbench.plugins.memory.kernel_rules import Call
from ctxbench.plugins.memory.one_pass import prepared, run_pass
from ctxbench.plugins.memory.profile import Phase
from ctxbench.plugins.predict.operators import Operator, dtype_of, works


class OnData(TorchDispatchMode):
    """Sees the operators of a pass on its own device: their kernels, as of tensors without data, and their MACs.

    `macs` are by place and operator, those of the backward pass at a place with a node.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        self.operators: list[Operator] = []
        self.macs: dict[tuple[CallSite, str], int] = {}
        self._places = CallSites(module)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        in_backward = torch._C._current_autograd_node() is not None
        place = self._places.backward() if in_backward else self._places.forward()
        output = func(*args, **kwargs or {})
        without = _without_data()
        given, made = tree_map_only(Tensor, without, ((args, kwargs or {}), output))
        call = Call(func, given[0], _tensors(given), in_backward, _tensors(made))
        if kernels := works(call, ()):
            phase: Phase = "backward" if in_backward else "forward"
            name = call.packet.removeprefix("aten.")
            self.operators.append(Operator(name, phase, place, tuple(kernels), dtype_of(call)))
        if rule := PRODUCTS.get(f"aten::{call.operator}") or OTHERS.get(f"aten::{call.operator}"):
            key = (place, f"aten::{call.operator}")
            self.macs[key] = self.macs.get(key, 0) + rule(given[0], made)
        return output


def _without_data() -> Callable[[Tensor], Tensor]:
    """A function that gives each tensor its copy without data: the same for the same part of memory."""
    found: dict[tuple[Any, ...], Tensor] = {}

    def copied(tensor: Tensor) -> Tensor:
        place = tensor.data_ptr() if tensor.layout is torch.strided else id(tensor)
        key = (place, tensor.shape, tensor.stride(), tensor.dtype)
        if key not in found:
            found[key] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        return found[key]

    return copied


def _tensors(tree: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


@without_compiler()
def counted_on_data(module: nn.Module, *inputs: Any, mode: Mode, autocast: torch.dtype | None) -> OnData:
    """The operators of one pass of a copy of `module`, which is not changed, on its own device.

    Other than on meta, composites count by their parts, in inference too.
    """
    duplicate = copy.deepcopy(module)
    seen = OnData(duplicate)
    device = inputs[0].device.type
    with repeatable(), prepared(duplicate, mode), torch.autocast(device, autocast, autocast is not None), seen:
        run_pass(duplicate, inputs, mode)
    return seen
