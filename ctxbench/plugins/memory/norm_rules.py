"""The byte rules of normalisations and of their gradients, for the table in `kernels.py`."""

import math

import torch
from torch._prims_common import suggest_memory_format

from ctxbench.plugins.memory.kernel_rules import (
    Call,
    Sizes,
    copies,
    copies_in,
    copy_in_its_format,
    is_half,
    is_view,
    size_of,
)

THREAD_SUMS = "with several threads, sums of what is not contiguous are kept for each thread"
HALF_SUMS = "half types that are not contiguous are summed over copies that depend on the type"
# CUDA sums more rows than these in parts (cuda/Normalization.cuh, flexible_launch_configs: seven blocks of 16 x 16).
MOST_ROWS_AT_ONCE = 7 * 16 * 16


def batch_norm_cpu(call: Call) -> Sizes | str:
    """Vectors with one number for each channel, in float32 at least; how many depends on the layout."""
    data, training = call.args[0], call.args[5]
    vector = data.shape[1] * max(data.element_size(), 4)
    if training and _sums_by_thread(data):
        return THREAD_SUMS
    if data.is_contiguous():
        return [2 * vector]
    if is_half(data):
        return HALF_SUMS
    dense = data.is_contiguous(memory_format=_channels_last(data))
    return [(3 if training else 2) * vector if dense else 0 if training else 3 * vector]


def batch_norm_backward_cpu(call: Call) -> Sizes | str:
    """A map for x - mean where gradient and input share a dense layout, else the per-channel sums."""
    grad, data, mask = call.args[0], call.args[1], call.args[9]
    layouts = (torch.contiguous_format, _channels_last(data))
    if _sums_by_thread(grad) or _sums_by_thread(data):
        return THREAD_SUMS
    if any(grad.is_contiguous(memory_format=f) and data.is_contiguous(memory_format=f) for f in layouts):
        return [size_of(data)] if mask[0] else []
    return HALF_SUMS if is_half(data) else [data.shape[1] * data.element_size()]


def _sums_by_thread(tensor: torch.Tensor) -> bool:
    """Return whether the kernel of channels last sums this tensor, with several threads."""
    in_channels_last = not tensor.is_contiguous() or (tensor.dim() > 2 and tensor.stride(1) == 1)
    return torch.get_num_threads() > 1 and in_channels_last


def _channels_last(tensor: torch.Tensor) -> torch.memory_format:
    by_rank = {4: torch.channels_last, 5: torch.channels_last_3d}
    return by_rank.get(tensor.dim(), torch.contiguous_format)


def _takes_cudnn(data: torch.Tensor, weight: torch.Tensor | None, training: bool) -> bool:
    """Return whether CUDA's batch norm is cuDNN's: affine, float32 or float64 weights, and no bfloat16."""
    if weight is None or weight.dtype not in (torch.float32, torch.float64) or data.dtype is torch.bfloat16:
        return False
    batches = 880801 if training else 65535
    return data.dim() >= 3 and data.shape[0] <= batches and data.numel() < 2**31 - 1 and torch.backends.cudnn.enabled


def batch_norm_cuda(call: Call) -> Sizes:
    """cuDNN: a dense copy. PyTorch's own kernel: in eval, mean and inverse deviation, which are not used again."""
    data, weight, training = call.args[0], call.args[1], call.args[5]
    if _takes_cudnn(data, weight, training):
        return copy_in_its_format(call)
    return [] if training else [4 * data.shape[1]] * 2


def batch_norm_backward_cuda(call: Call) -> Sizes | str:
    """cuDNN: a copy of the gradient that is not in the input's format, an expanded one too. Dense rows: two sums."""
    grad, data, weight = call.args[:3]
    if _takes_cudnn(data, weight, training=call.args[7]):
        return copies_in(suggest_memory_format(data), grad, data)
    if data.dim() > 2 or not data.is_contiguous():
        return batch_norm_backward_native(call)
    if data.shape[0] > MOST_ROWS_AT_ONCE:
        return f"more than {MOST_ROWS_AT_ONCE} rows may be summed in parts"
    return [max(4, data.element_size()) * data.shape[1]] * 2


def batch_norm_backward_native(call: Call) -> Sizes:
    """A copy of each map whose positions have not one common stride; an expanded gradient has."""
    maps = [tensor for tensor in call.args[:2] if tensor.dim() > 2]
    return [size_of(tensor) for tensor in maps if not is_view(tensor.flatten(2), tensor)]


def layer_norm_backward_cpu(call: Call) -> Sizes:
    """Copies, and for each thread one row of each parameter's gradient, if there is one."""
    rows = 2 * torch.get_num_threads() if any(call.args[7][1:]) else 0
    return [*copies(0, 1)(call), rows * math.prod(call.args[2]) * call.args[1].element_size()]


def layer_norm_backward_cuda(call: Call) -> Sizes | str:
    """Contiguous copies of gradient and input."""
    rows = call.args[1].numel() // math.prod(call.args[2])
    if rows > 2**16:
        return "more than 65536 rows may be summed in parts, which depends on the device"
    return copies(0, 1)(call)


def group_norm_cuda(call: Call) -> Sizes:
    """Half types: the statistics in float32. A factor and a shift of each image and channel, if there are weights."""
    data, weight, bias, batch, channels, positions, groups = call.args[:7]
    wide = max(data.element_size(), 4)
    statistics = [wide * batch * groups] * 2 if is_half(data) else []
    has_factors = positions > 1 and (weight is not None or bias is not None)
    return [*statistics, *([wide * batch * channels] * 2 if has_factors else [])]


def group_norm_backward_cuda(call: Call) -> Sizes:
    """Copies; two sums for each image and channel, a factor with weights; for the input's gradient two of a group."""
    data, weight, (batch, channels, positions, groups), mask = call.args[1], call.args[4], call.args[5:9], call.args[9]
    wide = max(data.element_size(), 4)
    by_channel = 0 if positions == 1 else 3 if mask[0] and weight is not None else 2
    sums = [*[wide * batch * channels] * by_channel, *([wide * batch * groups] * 2 if mask[0] else [])]
    return [*copies(0, 1)(call), *sums]


def group_norm_backward_cpu(call: Call) -> Sizes:
    """Copies; two sums for each image and channel, of half types in float32."""
    grad, data = call.args[:2]
    sums = 2 * math.prod(call.args[5:7]) * max(data.element_size(), 4)
    return [*copies_in(suggest_memory_format(data), grad, data), sums]


def batch_norm_outputs(call: Call, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Outputs as the kernels make them: in the input's suggested format, and no statistics in eval."""
    data, training = call.args[0], call.args[5]
    statistics = out[1:] if training else tuple(tensor.new_empty(0) for tensor in out[1:])
    return (_in_suggested_format(data), *statistics)


def batch_norm_outputs_cpu(call: Call, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """As `batch_norm_outputs`; the statistics have the dtype of the weights."""
    return _with_statistics_as(call.args[1], batch_norm_outputs(call, out))


def group_norm_outputs_cpu(call: Call, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The statistics have the dtype of the weights."""
    return _with_statistics_as(call.args[1], out)


def layer_norm_outputs_cpu(call: Call, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return _with_statistics_as(call.args[2], out)


def _with_statistics_as(weight: torch.Tensor | None, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    image, *statistics = out
    dtype = image.dtype if weight is None else weight.dtype
    return image, *(tensor.to(dtype) for tensor in statistics)


def batch_norm_backward_outputs(call: Call, out: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    """The input's gradient in the input's suggested format, where it is asked for."""
    return (_in_suggested_format(call.args[1]) if call.args[9][0] else None, *out[1:])


def _in_suggested_format(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=suggest_memory_format(tensor))
