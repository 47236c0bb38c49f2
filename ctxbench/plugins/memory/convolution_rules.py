"""The byte rules of convolutions and of their gradients, for the table in `kernels.py`."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from ctxbench.plugins.memory.kernel_rules import Call, Sizes, copies_in, half_sum, size_of
from ctxbench.plugins.memory.reduction_rules import partial_results

# Input channels from which a 3x3 convolution's workspace is told.
WIDE_CHANNELS = 1024


def winograd(call: Call) -> int:
    """Bytes that cuDNN may take for a wide 3x3 convolution while it runs; 0 for any other.

    Winograd's F(4x4, 3x3) in separate steps (cuDNN's WINOGRAD_NONFUSED) transforms maps and weights: 36 numbers for
    each 4x4 of a map, and for each of the weight's 3x3. Whether cuDNN takes it, its heuristics decide.
    """
    backward = call.operator == "convolution_backward"
    data, weight = call.args[1:3] if backward else call.args[:2]
    stride, dilation, groups = (call.args[i] for i in ((4, 6, 9) if backward else (3, 5, 8)))
    plain = tuple(weight.shape[2:]) == (3, 3) and groups == 1 and {*stride, *dilation} == {1}
    if not plain or weight.shape[1] < WIDE_CHANNELS:
        return 0
    return int(winograd_numbers(int(data.shape[0]), data.shape[2:], weight.shape) * weight.element_size())


def winograd_numbers(images: int, sides: Sequence[int], weight: Sequence[int]) -> int:
    """F(4x4, 3x3) in steps: 36 numbers for each 4x4 of the maps and for each 3x3 of the weight."""
    outputs, inputs = (int(side) for side in weight[:2])
    tiles = images * math.prod(-(-int(side) // 4) for side in sides)
    return 36 * (tiles * (inputs + outputs) + inputs * outputs)


def convolution_cuda(call: Call) -> Sizes:
    """Copies of what is not in the format that cuDNN computes in."""
    data, weight = call.args[:2]
    return copies_in(_convolution_layout(data, weight), data, weight)


def convolution_backward_cuda(call: Call) -> Sizes:
    """As the forward pass, and the gradient; after them the bias's gradient is summed."""
    grad, data, weight = call.args[:3]
    copied = copies_in(_convolution_layout(data, weight), grad, data, weight)
    with_bias = call.args[10][2]
    return max(copied, partial_results(grad, [0, *range(2, grad.dim())], 4) if with_bias else (), key=sum)


def convolution_cpu(call: Call) -> Sizes | str:
    """The unfolded input of one group; with several groups, also their outputs until they are concatenated.

    A dilated convolution unfolds one image at a time.
    """
    data, weight, bias, *rest = call.args
    backend = _convolution_backend(data, weight, bias, rest)
    layout = _convolution_layout(data, weight)
    if backend.name not in ("Slow2d", "SlowDilated2d"):
        return f"the {backend.name} convolution keeps its blocks in formats that depend on the processor"
    if rest[5] > 1 and layout is torch.channels_last:
        return "a grouped convolution of a channels-last input copies each group"
    columns = _columns(data[:1] if backend.name == "SlowDilated2d" else data, weight, call.out[0], rest)
    return [*copies_in(layout, data, weight), _per_group([data.contiguous()], columns, call.out, rest[5])]


def convolution_backward_cpu(call: Call) -> Sizes | str:
    """As the forward pass, and the gradient in the input's layout."""
    grad, data, weight, bias_sizes, *rest, mask = call.args
    bias = grad.new_empty(bias_sizes) if bias_sizes and any(bias_sizes) else None
    backend = _convolution_backend(data, weight, bias, rest)
    layout = _convolution_layout(data, weight)
    if backend.name == "SlowDilated2d":
        sums = size_of(bias) // rest[5] if bias is not None and mask[2] else 0  # an image's, before they are added
        columns = _columns(data[:1], weight, grad, rest) + sums
        if rest[5] == 1:
            return [*copies_in(layout, grad, data, weight), columns]
        return [*copies_in(layout, data, weight), _per_group([grad, data.contiguous()], columns, call.out, rest[5])]
    if backend.name != "Slow2d":
        return f"the backward pass of the {backend.name} convolution keeps formats that depend on the processor"
    columns = _columns(data, weight, grad, rest)
    if rest[5] == 1:
        summed = sum(half_sum(grad, [0, 2, 3])) if bias is not None and mask[2] else 0  # before there is grad_weight
        return [max(columns + sum(copies_in(layout, grad, data, weight)), summed - size_of(weight))]
    return [*copies_in(layout, data, weight), _per_group([grad, data.contiguous()], columns, call.out, rest[5])]


def _per_group(slices: Sequence[torch.Tensor], columns: int, out: Sequence[torch.Tensor], groups: int) -> int:
    if groups == 1:
        return columns
    narrow = [tensor.narrow(1, 0, tensor.shape[1] // groups) for tensor in slices]
    return max(columns + sum(copies_in(torch.contiguous_format, *narrow)), sum(size_of(tensor) for tensor in out))


def _convolution_backend(data: torch.Tensor, weight: torch.Tensor, bias: Any, rest: Sequence[Any]) -> Any:
    """Backend that PyTorch chooses on the CPU for these shapes; the query's tensors have one element each."""
    stand_ins = [
        None if tensor is None else torch.empty((), dtype=tensor.dtype).expand(tensor.shape)
        for tensor in (data, weight, bias)
    ]
    return torch._C._select_conv_backend(*stand_ins, *rest)


def _convolution_layout(data: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """Channels last if either argument is (aten/src/ATen/native/ConvUtils.h, thnn_conv_use_channels_last)."""
    formats = {suggest_memory_format(data), suggest_memory_format(weight)}
    return torch.channels_last if torch.channels_last in formats else torch.contiguous_format


def _columns(data: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, rest: Sequence[Any]) -> int:
    """Bytes of one group's unfolded input, whole batch; none for a 1x1 kernel without stride and padding."""
    stride, padding = rest[:2]
    if all(k == 1 for k in weight.shape[2:]) and all(s == 1 for s in stride) and not any(padding):
        return 0
    return int(data.shape[0] * math.prod(weight.shape[1:]) * math.prod(out.shape[2:]) * data.element_size())


def convolution_outputs(call: Call, out: torch.Tensor) -> torch.Tensor:
    """The output in the format that the convolution is computed in."""
    layout = _convolution_layout(*call.args[:2])
    return out if out.is_contiguous(memory_format=layout) else torch.empty_like(out, memory_format=layout)


def convolution_backward_outputs_cpu(
    call: Call, out: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of input and weight as PyTorch's own kernels make them; on meta it depends on the version."""
    layouts = (_convolution_layout(*call.args[1:3]), torch.contiguous_format)
    made = (
        each
        if each is None or each.is_contiguous(memory_format=layout)
        else torch.empty_like(each, memory_format=layout)
        for each, layout in zip(out, layouts, strict=False)
    )
    return (*made, *out[2:])
