"""The calls of a pass on its own device or on meta, each with its place: plain data that costs are read off."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ctxbench.meta.calls import Operation, RecordedCall, Writer
from ctxbench.meta.watch import OperatorCall, PassWatch


class Recorder(PassWatch):
    """Keeps the calls of a pass of a module. `places.by_forward` has submodules whose `forward` alone was called."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.in_backward = None
        self.calls: list[RecordedCall] = []
        self.writer = Writer(lambda tensor: True)

    def run(self, call: OperatorCall) -> None:
        _ = call.place  # that of the code before it runs
        super().run(call)

    def take(self, call: OperatorCall) -> None:
        node = torch._C._current_autograd_node()
        running = None if node is None else (node.name(), node._sequence_nr())
        self.calls.append(RecordedCall(self.written(call), call.place, running, call.around, call.is_whole))

    def written(self, call: OperatorCall) -> Operation:
        """The call as plain data."""
        return self.writer.operation(
            call.func, call.args, tensors_in((call.args, call.kwargs)), tensors_in(call.output)
        )


def tensors_in(tree: Any) -> tuple[Tensor, ...]:
    """The tensors of nested lists, tuples and mappings."""
    return tuple(leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
