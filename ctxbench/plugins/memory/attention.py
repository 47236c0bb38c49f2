"""Fused attention: the path that `scaled_dot_product_attention` takes.

On meta PyTorch takes the unfused (math) path. `attend` takes the one of the device instead, by PyTorch's own rules
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.cpp, select_sdp_backend). For CUDA the device
has compute capability 8.0 or later. The switches of `torch.nn.attention.sdpa_kernel` and their order count.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend

from ctxbench.meta.fused_attention import is_fusible, takes_three_dimensions
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.tracker import Tracker

ATTENTION = "scaled_dot_product_attention"
# The reason of its mark where only the card decides who computes it.
TAKES_CUDNN = (
    "on compute capability 9.0 and 10.x PyTorch takes cuDNN's kernel, whose workspace is not known, unless "
    "torch.nn.attention.sdpa_kernel switches it off"
)
_HALF = (torch.float16, torch.bfloat16)
_unfused = functional.scaled_dot_product_attention


def attend(
    tracker: Tracker,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` on meta by the path of the tracker's device; it is told what is not certain."""
    device = tracker.table.device
    if takes_three_dimensions(query, key, value):
        query, key, value = (each.unsqueeze(0) for each in (query, key, value))
        mask = attn_mask if attn_mask is None or attn_mask.dim() != 3 else attn_mask.unsqueeze(0)
        return attend(tracker, query, key, value, mask, dropout_p, is_causal, scale, enable_gqa).squeeze(0)
    maps, options = (query, key, value), (dropout_p, is_causal)
    on_device = _path_on_cpu if device == "cpu" else _path_on_cuda
    path = on_device(maps, attn_mask, *options, enable_gqa)
    tracker.replaced |= _counts_otherwise(path, maps, enable_gqa)
    tracker.since_2020.others = True
    if path == SDPBackend.MATH or device == "cuda-2020":
        tracker.note_unfused(_why_unfused(device, maps))
        tracker.adds_in_place = True  # the mask
        try:
            return _unfused(*maps, attn_mask, *options, scale=scale, enable_gqa=enable_gqa)
        finally:
            tracker.adds_in_place = False
    mask = _additive(attn_mask, query.dtype)
    if device == "cpu":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return flash(*maps, *options, attn_mask=mask, scale=scale)[0]  # type: ignore[no-any-return]  # PyTorch's
    if path == SDPBackend.CUDNN_ATTENTION:
        raise UnpredictableError(f"{ATTENTION} takes cuDNN's kernel, whose workspace is not known; measure the peak")
    _mark_device(tracker.marks, maps, dropout_p)
    if path == SDPBackend.FLASH_ATTENTION:
        return _flash(*maps, *options, scale)
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in maps)
    mask = None if mask is None else _aligned(mask, query, key)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(*maps, mask, needs_gradient, *options, scale=scale)[0]  # type: ignore[no-any-return]  # PyTorch's


def _counts_otherwise(path: SDPBackend, maps: tuple[Tensor, ...], grouped: bool) -> bool:
    """Return whether a path has other products than a count takes: the math path's gradient, heads that are padded."""
    if path == SDPBackend.MATH:
        return torch.is_grad_enabled() and is_fusible(*maps, grouped=grouped)
    return grouped or (path == SDPBackend.FLASH_ATTENTION and maps[0].shape[-1] % 8 > 0)


def _path_on_cuda(
    maps: tuple[Tensor, ...], mask: Tensor | None, dropout: float, is_causal: bool, grouped: bool
) -> SDPBackend:
    """The first path that is switched on and takes these arguments, in PyTorch's order.

    The memory-efficient one alone takes no fewer heads of keys than of queries.
    """
    query, key, _ = maps
    sizes = [tensor.shape[-1] for tensor in maps]
    half, dense = query.dtype in _HALF, is_fusible(*maps, grouped=grouped)
    aligned = not any(size % (8 if half else 4) for size in sizes)
    square = query.shape[-2] == key.shape[-2]
    switched = torch.backends.cuda
    able = {
        SDPBackend.FLASH_ATTENTION: switched.flash_sdp_enabled()
        and dense and half and mask is None and len(set(sizes)) == 1 and sizes[0] <= 256 and (square or not is_causal),
        SDPBackend.EFFICIENT_ATTENTION: switched.mem_efficient_sdp_enabled()
        and is_fusible(*maps) and (half or query.dtype is torch.float32) and sizes[0] == sizes[1] and aligned,
        SDPBackend.CUDNN_ATTENTION: switched.cudnn_sdp_enabled() and dense and half and aligned,
        SDPBackend.MATH: switched.math_sdp_enabled(),
    }  # fmt: skip
    return _first(able)


def _path_on_cpu(
    maps: tuple[Tensor, ...], mask: Tensor | None, dropout: float, is_causal: bool, grouped: bool
) -> SDPBackend:
    query, key, value = maps
    fits = mask is None or (
        not mask.requires_grad
        and mask.dim() in (2, 4)
        and all(m in (1, n) for m, n in zip(mask.shape[-2:], (query.shape[-2], key.shape[-2]), strict=True))
    )
    able = {
        SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled()
        and is_fusible(*maps, grouped=grouped) and fits and not dropout
        and query.shape[-1] == key.shape[-1] == value.shape[-1],
        SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled(),
    }  # fmt: skip
    return _first(able)


def _why_unfused(device: str, maps: tuple[Tensor, ...]) -> str:
    query, sizes = maps[0], sorted({tensor.shape[-1] for tensor in maps})
    multiple = 8 if query.dtype in _HALF else 4
    reasons = {
        "the PyTorch of 2020 has none": device == "cuda-2020",
        f"its maps have {query.dim()} dimensions; a fused kernel takes [batch, heads, positions, channels]": (
            query.dim() != 4
        ),
        "its maps differ in batch or heads": len({tensor.shape[:2] for tensor in maps}) > 1,
        "the channels of a position are not side by side in memory (stride 1 in the last dimension)": any(
            tensor.stride(-1) != 1 and tensor.shape[-1] > 1 for tensor in maps
        ),
        "it takes no float64": device == "cuda" and query.dtype is torch.float64,
        f"heads have {' and '.join(map(str, sizes))} channels, no multiple of {multiple}": (
            device == "cuda" and any(size % multiple for size in sizes)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "its mask, dropout or a switch forbids it")


def _first(able: Mapping[Any, bool]) -> SDPBackend:
    for number in torch._C._get_sdp_priority_order():
        for backend, takes in able.items():
            if int(backend) == number and takes:
                return backend  # type: ignore[no-any-return]  # its type has no int() in PyTorch's stubs
    raise UnpredictableError(f"no path of {ATTENTION} that is switched on takes these arguments")


def _mark_device(marks: dict[str, str], maps: tuple[Tensor, ...], dropout: float) -> None:
    query = maps[0]
    sizes = [tensor.shape[-1] for tensor in maps]
    if torch.backends.cuda.cudnn_sdp_enabled() and query.dtype in _HALF and not any(size % 8 for size in sizes):
        marks[ATTENTION] = TAKES_CUDNN
    elif query.dtype in _HALF and max(sizes) > 192 and torch.is_grad_enabled():
        marks[ATTENTION] = (
            "on compute capability 8.6, 8.9 and 12.x heads above 192 channels take another path in training"
        )


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask of booleans as one of numbers (transformers/attention.cpp, convert_boolean_attn_mask)."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))


def _aligned(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask with rows at multiples of 8 numbers, for each head (transformers/attention.cpp, preprocess_mask)."""
    columns = mask.shape[-1]
    if mask.stride(-1) != 1 or any(stride % 8 for stride in mask.stride()[:-1]):
        mask = functional.pad(mask, (0, 8 - columns % 8))[..., :columns]
    return mask.expand(*query.shape[:3], key.shape[2])


def _flash(query: Tensor, key: Tensor, value: Tensor, dropout: float, is_causal: bool, scale: float | None) -> Tensor:
    """Heads are padded to multiples of 8 channels (transformers/attention.cpp, pad_last_dim)."""
    channels = query.shape[-1]
    padded = [functional.pad(t, (0, -channels % 8)) if channels % 8 else t for t in (query, key, value)]
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out: Tensor = flash(*padded, dropout, is_causal, False, scale=channels**-0.5 if scale is None else scale)[0]
    return out[..., :channels] if channels % 8 else out
