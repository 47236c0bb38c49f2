"""Events hidden from the dispatcher: calls that depend on the device, saved numbers, devices named in the code."""

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch._prims_common import suggest_memory_format
from torch.nn import MultiheadAttention, functional

from ctxbench.base.mode import Mode
from ctxbench.meta.autocast import Autocast
from ctxbench.meta.scan import SCANS
from ctxbench.meta.watch import FunctionWatch
from ctxbench.plugins.memory.attention import attend
from ctxbench.plugins.memory.convention import UNDER_AUTOCAST, UnpredictableError
from ctxbench.plugins.memory.tracker import Tracker

_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_REPLACED = {"multi_head_attention_forward", "dropout", "mish", "rms_norm"}
_dropout = functional.dropout
_MOVES = {"to", "cuda", "cpu", "xpu", "mps"}


class CallWatch(FunctionWatch):
    """Sees the module's calls of PyTorch's API before they become operators, and before `autocast` casts."""

    def __init__(self, tracker: Tracker, mode: Mode, autocast: Autocast) -> None:
        super().__init__()
        self.tracker = tracker
        self.mode = mode
        self.autocast = autocast

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", str(func))
        _refuse_named_device(name, args, kwargs)
        if name in _RECURRENT:
            raise UnpredictableError(
                f"{name} is one library call on CUDA and many operators on meta; measure the peak instead"
            )
        self.tracker.replaced |= name in _REPLACED
        if name == "multi_head_attention_forward":
            return self._attend_with_heads(func, *args, **kwargs)
        if name == "scaled_dot_product_attention":
            args, kwargs = self.autocast.cast(name, args, kwargs)
            return attend(self.tracker, *args, **kwargs)
        if func is _dropout and self.tracker.table.device != "cpu":
            return _dropout_cuda(*args, **kwargs)
        if name == "group_norm" and self.tracker.table.counts_host and not _keeps_contiguous(args[0]):
            self.tracker.marks[name] = "the CPU keeps a channels-last layout, where meta makes a contiguous copy"
        self._mark_what_is_hidden(name, args)
        self.tracker.adds_in_place = name == "linear"
        result = func(*args, **kwargs)
        self.tracker.adds_in_place = False
        if func in SCANS:
            self.tracker.note_scan(args, result)
        if self.tracker.table.counts_host:
            self._count_saved_numbers(name, result)
        return result

    def _attend_with_heads(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """`nn.MultiheadAttention`: PyTorch shows this call alone, so the functions inside it are replaced."""
        takes_fast_path = torch.backends.mha.get_fastpath_enabled() and not torch.is_autocast_enabled("cuda")
        if self.mode == "infer" and takes_fast_path and _is_fused_on_a_device():
            raise UnpredictableError(
                "MultiheadAttention uses a fused kernel in inference, but not on meta; measure the peak, or predict "
                "the kernels of training with torch.backends.mha.set_fastpath_enabled(False)"
            )
        if self.mode == "train" and self.tracker.table.counts_host and kwargs.get("need_weights", True):
            self.tracker.marks["multi_head_attention_forward"] = "the number that scales the queries, 8 bytes"
        inside = ("linear", "dropout", "scaled_dot_product_attention")
        seen: dict[str, Any] = {name: self._seen(getattr(functional, name)) for name in inside}
        with patch.multiple(functional, **seen):
            return func(*args, **kwargs)

    def _mark_what_is_hidden(self, name: str, args: tuple[Any, ...]) -> None:
        """Mark calls that make tensors or casts within, where no mode sees them."""
        marks, on_host = self.tracker.marks, self.tracker.table.counts_host
        if on_host and name == "__getitem__" and _has_list(args[1]):
            marks[name] = "an index by a list is a tensor of 8 bytes a place"
        if on_host and name == "local_response_norm" and self.mode == "train":
            marks[name] = "the number that scales the sums, 8 bytes"
        is_trained = torch.is_grad_enabled() and args and getattr(args[0], "requires_grad", False)
        if on_host and name == "max_pool1d" and not is_trained:
            marks[name] = "without a gradient the CPU does not keep the positions of the maxima, as meta does"
        if self.autocast.is_on and self.autocast.is_cast_within(name):
            marks[name + UNDER_AUTOCAST] = "autocast casts within it, where meta casts its arguments"

    def _seen(self, func: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.call(func, args, kwargs)

    def _count_saved_numbers(self, name: str, result: Any) -> None:
        """`x * 0.5` keeps 0.5 as an 8-byte host tensor until the backward pass."""
        node = result.grad_fn if isinstance(result, torch.Tensor) else None
        for attribute in ("_raw_saved_self", "_raw_saved_other"):
            saved = getattr(node, attribute, None)
            tensor = getattr(saved, "data", None)
            if isinstance(tensor, torch.Tensor) and tensor.dim() == 0 and tensor.device.type == "cpu":
                self.tracker.add_host_number(tensor, name)


def _is_fused_on_a_device() -> bool:
    """Return whether an `nn.MultiheadAttention` calls that a device fuses.

    It says itself why it does not fuse. Two of its reasons hold here alone: its tensors are on meta, and a mode sees
    them.
    """
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_code is not MultiheadAttention.forward.__code__:
        frame = frame.f_back
    why = frame.f_locals["why_not_fast_path"] if frame else "called by itself"
    return not why or why.startswith("some Tensor argument")


def _refuse_named_device(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    named = kwargs.get("device")
    if name in _MOVES and isinstance(args[0], torch.Tensor):
        if name != "to":
            named = name
        elif len(args) > 1 and isinstance(args[1], str | torch.device | int):
            named = args[1]
    if named is not None and str(named) != "meta":
        raise UnpredictableError(
            f"{name} asks for the device {str(named)!r} by name; use the input's device, so that the module runs "
            "anywhere: device=x.device"
        )


def _has_list(index: Any) -> bool:
    return isinstance(index, list) or (isinstance(index, tuple) and any(isinstance(each, list) for each in index))


def _keeps_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or suggest_memory_format(tensor) is torch.contiguous_format


def _dropout_cuda(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """CUDA's dropout saves a mask with one byte for each element; on meta the mask is a float tensor."""
    if inplace or not training or not 0 < p < 1:
        return torch.dropout_(input, p, training) if inplace else torch.dropout(input, p, training)
    return torch.native_dropout(input, p, training)[0]
