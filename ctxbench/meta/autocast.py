"""Autocast on meta, where PyTorch makes no casts: those that it would make on the device that meta stands for.

Which operators are cast, PyTorch's dispatcher tells for the CPU and for CUDA, whatever it was built for. To which dtype
they are cast is read in aten/src/ATen/autocast_mode.h and autocast_mode.cpp: to the lower one, to the widest of the
arguments, else to float32.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import FunctionType
from typing import Any, Literal, Self
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map

from ctxbench.meta.watch import FunctionWatch

Kind = Literal["cpu", "cuda"]

# fmt: off
_LOWER = {
    "cpu": frozenset((
        "_addmm_activation", "_convolution", "_native_multi_head_attention", "addbmm", "addmm", "baddbmm", "bmm",
        "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "linalg_vecdot", "linear", "matmul", "mkldnn_rnn_layer", "mm", "prelu", "scaled_dot_product_attention",
    )),
    "cuda": frozenset((
        "_convolution", "_scaled_dot_product_flash_attention", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell",
        "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_tbc",
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "cudnn_convolution",
        "cudnn_convolution_transpose", "einsum", "gru_cell", "linalg_multi_dot", "linalg_vecdot", "linear",
        "lstm_cell", "matmul", "mm", "mv", "prelu", "rnn_relu_cell", "rnn_tanh_cell", "scaled_dot_product_attention",
    )),
}
_WIDEST = {
    "cpu": frozenset(("cat", "index_copy", "stack")),
    "cuda": frozenset((
        "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add",
        "tensordot", "vdot",
    )),
}
# Operators without a cast of their own, made of one that has: by device, the one.
_MADE_OF = {
    "cpu": dict.fromkeys(("chain_matmul", "einsum", "inner", "linalg_multi_dot", "tensordot"), "matmul"),
    "cuda": {"cross_entropy_loss": "log_softmax", "inner": "matmul", "linalg_norm": "linalg_vector_norm"},
}
# fmt: on
_OTHER_NAMES = {"__matmul__": "matmul", "__pow__": "pow", "nll_loss_nd": "nll_loss"}
_PADDED = {"reflect": "reflection_pad{}d", "replicate": "replication_pad{}d"}
# PyTorch's questions about autocast on a device.
_ABOUT_DEVICES: tuple[tuple[Any, str], ...] = (
    (torch, "is_autocast_enabled"),
    (torch, "get_autocast_dtype"),
    (torch.amp, "is_autocast_available"),
)
# Modules of PyTorch's functions in Python, which show a mode themselves and not what they call.
_IN_PYTHON = (functional, torch.functional, torch._tensor)


class Autocast(FunctionWatch):
    """Casts the arguments of a module's calls as autocast on a device, while it is on.

    It begins with the case's autocast to `dtype`, with none if that is None. A part of the module may switch it on or
    off, for the device or for "meta", by `torch.autocast`. As PyTorch's it keeps the cast of a weight until it is left.
    `device` is a CPU or any GPU, which stands for CUDA. `on_kept` gets each cast that is kept.
    """

    on_kept: Callable[[torch.Tensor], None] | None = None

    def __init__(self, device: str = "cuda", dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.kind: Kind = "cpu" if device == "cpu" else "cuda"
        self.dtype = dtype
        # A weight and its cast, by the weight's id, which stays its own as long as it is here.
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._running: list[FunctionType] = []  # functions in Python that have not returned
        self._entered = ExitStack()

    @property
    def is_on(self) -> bool:
        """Return whether the next call is cast."""
        return torch.is_autocast_enabled(self.kind)

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._stands_for_meta())
            entered.callback(self._weights.clear)
            if self.dtype is not None:
                entered.enter_context(torch.autocast(self.kind, dtype=self.dtype))
            super().__enter__()  # type: ignore[no-untyped-call]  # PyTorch's is not typed
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # PyTorch's is not typed
        self._entered.close()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.is_on:
            return func(*args, **kwargs)
        if isinstance(func, FunctionType) and func not in self._running:
            with _seen_within(), self._again(func):
                return func(*args, **kwargs)
        args, kwargs = self.cast(getattr(func, "__name__", ""), args, kwargs)
        return func(*args, **kwargs)

    def is_cast_within(self, name: str) -> bool:
        """Return whether a function of this name is made of operators that are cast, and not cast itself."""
        return name in _MADE_OF[self.kind]

    def cast(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The arguments as autocast hands them to the operator of this name."""
        name = _operator(name, self.kind, args, kwargs)
        if not self.is_on or kwargs.get("out") is not None or name not in _cast_operators(self.kind):
            return args, dict(kwargs)
        change: Callable[[Any], Any]
        if name in _LOWER[self.kind]:
            change = self._lowered
        else:
            found = [value.dtype for value in tree_leaves((args, kwargs)) if _is_cast(value)]
            is_lower = name in _WIDEST[self.kind] and torch.float32 not in found
            wanted = torch.get_autocast_dtype(self.kind) if is_lower else torch.float32
            change = partial(_cast, dtype=wanted)
        # Compiled by GCC, PyTorch casts the last argument first. The backward pass casts in the opposite order.
        last = {key: tree_map(change, value) for key, value in reversed(dict(kwargs).items())}
        first = [tree_map(change, value) for value in reversed(args)]
        return tuple(reversed(first)), dict(reversed(last.items()))

    def _lowered(self, value: Any) -> Any:
        dtype = torch.get_autocast_dtype(self.kind)
        if not _is_cast(value) or value.dtype == dtype:
            return value
        is_kept = value.dtype == torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()
        if not (is_kept and torch.is_autocast_cache_enabled()):
            return value.to(dtype)
        if id(value) not in self._weights:
            self._weights[id(value)] = value, value.to(dtype)
            if self.on_kept is not None:
                self.on_kept(self._weights[id(value)][1])
        return self._weights[id(value)][1]

    @contextmanager
    def _again(self, func: FunctionType) -> Iterator[None]:
        """See what a function calls; a method that calls its C form shows itself once more."""
        self._running.append(func)
        super().__enter__()  # type: ignore[no-untyped-call]  # PyTorch's is not typed
        try:
            yield
        finally:
            self._running.pop()
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]  # PyTorch's is not typed

    @contextmanager
    def _stands_for_meta(self) -> Iterator[None]:
        """Have PyTorch's autocast take "meta" for the kind, also where PyTorch has no such device."""
        make, clear = torch.autocast.__init__, torch.clear_autocast_cache

        def made(
            autocast: torch.autocast,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            device = self._own(device_type)
            is_own = device == self.kind
            make(autocast, device, dtype, enabled and not is_own, cache_enabled)
            if is_own:  # PyTorch switches it off for a device that it does not see
                autocast._enabled = enabled

        def cleared() -> None:
            clear()
            self._weights.clear()

        with ExitStack() as patched:
            patched.enter_context(patch.object(torch.autocast, "__init__", made))
            patched.enter_context(patch.object(torch, "clear_autocast_cache", cleared))
            for where, name in _ABOUT_DEVICES:
                patched.enter_context(patch.object(where, name, self._of_own(getattr(where, name))))
            yield

    def _own(self, device: str) -> str:
        return self.kind if device == "meta" else device

    def _of_own(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *devices: ask(*map(self._own, devices))


@contextmanager
def _seen_within() -> Iterator[None]:
    """Have PyTorch's functions in Python run, so that a mode sees the operators that they call."""
    with ExitStack() as patched:
        for module in _IN_PYTHON:
            checks = [name for name in vars(module) if name.startswith("has_torch_function")]
            for name in checks:
                patched.enter_context(patch.object(module, name, lambda *_: False))
        yield


@cache
def _cast_operators(kind: Kind) -> frozenset[str]:
    """The operators that autocast on a kind of device casts, without their overloads."""
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}[kind]
    names = torch._C._dispatch_get_all_op_names()
    found = (each for each in names if torch._C._dispatch_has_kernel_for_dispatch_key(each, key))
    return frozenset(each.partition("::")[2].partition(".")[0] for each in found)


def _operator(name: str, kind: Kind, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The operator whose cast a function of this name has."""
    if name == "pad":
        _, pad, mode = (*args, *kwargs.values(), "constant")[:3]
        return _PADDED.get(mode, "constant_pad_nd").format(len(pad) // 2)
    name = _OTHER_NAMES.get(name, name)
    return _MADE_OF[kind].get(name, name)


def _is_cast(value: Any) -> bool:
    """Return whether autocast changes such a value: floating-point tensors, but not of float64."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if _is_cast(value) and value.dtype != dtype else value
