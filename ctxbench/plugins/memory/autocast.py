"""Autocast on meta: the casts that `torch.autocast` would make on CUDA, which do not reach the meta device.

The lists are those of PyTorch's documentation (Automatic Mixed Precision package, CUDA Ops that can autocast), and
`einsum` and `scaled_dot_product_attention`, which are made of products.
"""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from ctxbench.plugins.memory.convention import UnpredictableError

# fmt: off
_LOWER = frozenset((
    "__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "multi_dot",
    "linalg_multi_dot", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "linear", "matmul", "mm", "mv", "prelu", "einsum", "scaled_dot_product_attention",
))
_FLOAT32 = frozenset((
    "__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "cosh", "cdist", "cosine_similarity", "cumprod",
    "cumsum", "dist", "erfinv", "exp", "expm1", "group_norm", "layer_norm", "log", "log10", "log_softmax", "log1p",
    "log2", "norm", "normalize", "pdist", "pow", "prod", "reciprocal", "rsqrt", "sinh", "softmax", "softmin",
    "softplus", "sum", "renorm", "tan",
))
_WIDEST = frozenset((
    "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "grid_sample", "index_put", "scatter_add",
    "stack", "tensordot",
))
# fmt: on
# Calls that PyTorch shows as one, and that hold functions of several lists.
_WHOLE = frozenset(("multi_head_attention_forward",))


class Autocast(TorchFunctionMode):
    """Casts what a module's calls of PyTorch's API are given, while it is entered and CUDA's autocast is on.

    As `torch.autocast` it keeps the cast of a weight until it is left. It switches CUDA's autocast on, which changes
    nothing on another device, so that a part of a module can switch it off.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        # A weight and its cast, by the weight's id, which stays its own as long as it is here.
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __enter__(self) -> Self:
        self._before = torch.is_autocast_enabled("cuda")
        torch.set_autocast_enabled("cuda", True)
        super().__enter__()  # type: ignore[no-untyped-call]  # PyTorch's is not typed
        return self

    def __exit__(self, *error: Any) -> None:
        torch.set_autocast_enabled("cuda", self._before)
        self._weights.clear()
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # PyTorch's is not typed

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        given = (args, dict(kwargs or {}))
        if not torch.is_autocast_enabled("cuda"):
            return func(*args, **(kwargs or {}))
        if name in _WHOLE:
            raise UnpredictableError(f"{name} is one call, whose casts under autocast are not known")
        if name in _LOWER:
            given = tree_map(self._lowered, given)
        elif name in _FLOAT32:
            given = tree_map(lambda value: _cast(value, torch.float32), given)
        elif name in _WIDEST:
            halves = [value.dtype for value in tree_leaves(given) if _is_cast(value)]
            widest = torch.float32 if torch.float32 in halves else self.dtype
            given = tree_map(lambda value: _cast(value, widest), given)
        positional, named = given
        return func(*positional, **named)

    def _lowered(self, value: Any) -> Any:
        if not _is_cast(value) or value.dtype == self.dtype:
            return value
        if not (value.dtype == torch.float32 and value.requires_grad and value.is_leaf):
            return value.to(self.dtype)
        if id(value) not in self._weights:
            self._weights[id(value)] = value, value.to(self.dtype)
        return self._weights[id(value)][1]


def _is_cast(value: Any) -> bool:
    """Return whether autocast changes such a value: floating-point tensors, but not of float64."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if _is_cast(value) and value.dtype != dtype else value
