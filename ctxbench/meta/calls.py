"""Operator calls of a pass as plain data: no tensor is held, and nothing of PyTorch is needed to read them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from ctxbench.base.call_sites import CallSite

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor of a call: shape and strides in numbers, the dtype's name, bytes a number, the offset in its storage.

    Those of a call with the same `storage` share memory. One that is not `on_device` lies in the host's memory.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    storage: int
    offset: int = 0
    on_device: bool = True

    def numel(self) -> int:
        """Numbers that it shows."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_floating_point(self) -> bool:
        return "float" in self.dtype

    @property
    def is_contiguous(self) -> bool:
        """Return whether its numbers lie in memory one after the other, the last dimension first."""
        length = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != length:
                return not self.numel()
            length *= size
        return True

    @property
    def is_channels_last(self) -> bool:
        """Return whether a kernel takes it for channels last, as c10/core/MemoryFormat.h tells by the strides.

        From channels over columns and rows to images, each stride is at least what the one before spans.
        """
        if self.ndim != 4 or not self.strides[1] or not self.numel():
            return False
        spanned = 0
        for axis in (1, 3, 2, 0):
            is_ambiguous = axis == 0 and spanned == self.strides[1]  # one channel, or one position
            if self.strides[axis] < spanned or is_ambiguous:
                return False
            spanned = self.strides[axis] * self.shape[axis]
        return True


# What stands among the arguments of a call; a dtype, a device and their like by their names. A rule for an operator
# knows of what type each is.
if TYPE_CHECKING:
    Value = Any
else:
    _One = bool | int | float | str | Map | None
    Value = _One | tuple[_One, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator call: its name such as `aten.add_`, positional arguments, tensors of all arguments and outputs.

    `is_view` and `tags` are what PyTorch declares of the operator.
    """

    packet: str
    args: tuple[Value, ...]
    given: tuple[Map, ...]
    out: tuple[Map, ...]
    is_view: bool = False
    tags: tuple[str, ...] = ()

    @property
    def is_pointwise(self) -> bool:
        """Return whether PyTorch declares it as an operator on each element alone."""
        return "pointwise" in self.tags

    @property
    def name(self) -> str:
        """The name as PyTorch has it, such as `aten::add`, in place or not."""
        return self.packet.replace(".", "::", 1).removesuffix("_")

    @property
    def operator(self) -> str:
        """The name without namespace and without the underscore of an in-place operator."""
        return self.packet.rpartition(".")[2].removesuffix("_")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """An operator call, where it comes from, and the autograd node that ran it: name and number, None in the forward.

    It is a part of the composite operators `around`; a composite one that ran as its parts is not whole.
    """

    operation: Operation
    place: CallSite
    node: tuple[str, int] | None = None
    around: Sequence[str] = ()
    is_whole: bool = True

    @property
    def name(self) -> str:
        """The operator's name, in place or not."""
        return self.operation.name

    @property
    def args(self) -> tuple[Value, ...]:
        """The positional arguments."""
        return self.operation.args

    @property
    def output(self) -> Map | tuple[Map, ...]:
        """The tensor that it returned, or several."""
        out = self.operation.out
        return out[0] if len(out) == 1 else out

    @property
    def is_view(self) -> bool:
        """Return whether PyTorch declares the operator as a view."""
        return self.operation.is_view

    @property
    def tags(self) -> tuple[str, ...]:
        """PyTorch's tags of the operator."""
        return self.operation.tags


class Writer:
    """Makes plain data of calls. Of the tensors, `on_device` tells those in the memory of the pass's device."""

    def __init__(self, on_device: "Callable[[Tensor], bool]") -> None:
        self._on_device = on_device
        self._known: dict[Map, Map] = {}  # alike ones are held once

    def operation(self, func: Any, args: "Sequence[Any]", given: "tuple[Tensor, ...]", out: Any) -> Operation:
        """A call of `func` that has run; `given` are the tensors of all its arguments, `out` those that it returned."""
        import torch

        storages: dict[int, int] = {}

        def plain(value: Any) -> Value:
            if isinstance(value, torch.Tensor):
                return self._map(value, storages)
            if isinstance(value, list | tuple):
                return tuple(map(plain, value))
            return value if value is None or isinstance(value, bool | int | float | str) else str(value)

        maps = [self._map(each, storages) for each in given]
        return Operation(
            str(func.overloadpacket),
            tuple(map(plain, args)),
            tuple(maps),
            tuple(self._map(each, storages) for each in out),
            func.is_view,
            tags_of(func),
        )

    def _map(self, tensor: "Tensor", storages: dict[int, int]) -> Map:
        place = tensor.untyped_storage()._cdata
        found = Map(
            tuple(tensor.shape),
            tensor.stride(),
            str(tensor.dtype).removeprefix("torch."),
            tensor.element_size(),
            storages.setdefault(place, len(storages)),
            int(tensor.storage_offset()),
            self._on_device(tensor),
        )
        return self._known.setdefault(found, found)


@cache
def tags_of(func: Any) -> tuple[str, ...]:
    """The names of PyTorch's tags of an operator."""
    return tuple(sorted(each.name for each in func.tags))
