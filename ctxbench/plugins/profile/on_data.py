"""Counts of a pass on numbers, for a module whose pass depends on them, which meta cannot run."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.base.mode import Mode
from ctxbench.meta.calls import Writer
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.rules import OTHERS, PRODUCTS
from ctxbench.plugins.macs.watch import repeatable
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
        self._writer = Writer(lambda tensor: True)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        in_backward = torch._C._current_autograd_node() is not None
        place = self._places.backward() if in_backward else self._places.forward()
        output = func(*args, **kwargs or {})
        call = self._writer.operation(func, args, _tensors((args, kwargs)), _tensors(output))
        if kernels := works(call):
            phase: Phase = "backward" if in_backward else "forward"
            name = call.packet.removeprefix("aten.")
            self.operators.append(Operator(name, phase, place, tuple(kernels), dtype_of(call)))
        if rule := PRODUCTS.get(f"aten::{call.operator}") or OTHERS.get(f"aten::{call.operator}"):
            key = (place, f"aten::{call.operator}")
            self.macs[key] = self.macs.get(key, 0) + rule(call.args, call.out[0] if len(call.out) == 1 else call.out)
        return output


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
