"""The calls of a pass on its own device or on meta, each with its place: plain data that costs are read off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.meta.calls import Operation, Writer


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """An operator call, where it comes from, and the autograd node that ran it: name and number, None in the forward.

    `name` has no overload.
    """

    name: str
    operation: Operation
    place: CallSite
    node: tuple[str, int] | None = None


class Recorder(TorchDispatchMode):
    """Sees the calls of a pass of a module. `places.by_forward` has the submodules whose `forward` alone was called."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        self.calls: list[RecordedCall] = []
        self.places = CallSites(module)
        self._writer = Writer(lambda tensor: True)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        node = torch._C._current_autograd_node()
        place = self.places.forward() if node is None else self.places.backward()
        output = func(*args, **kwargs or {})
        operation = self._writer.operation(func, args, _tensors((args, kwargs)), _tensors(output))
        running = None if node is None else (node.name(), node._sequence_nr())
        self.calls.append(RecordedCall(func.name().partition(".")[0], operation, place, running))
        return output


def _tensors(tree: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
