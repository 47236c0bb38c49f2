"""The byte rules behind the table in `kernels.py`: from one operator call to the blocks inside its kernel."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

Sizes = Sequence[int]
HALF_SUMS = "half types that are not contiguous are summed over copies that depend on the type"


@dataclass
class Call:
    """One operator call: its arguments, the tensors among them and, after it ran, its outputs."""

    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[torch.Tensor, ...]
    in_backward: bool = False
    out: tuple[torch.Tensor, ...] = ()
    name: str = field(init=False)  # aten.add.Tensor
    packet: str = field(init=False)  # aten.add

    def __post_init__(self) -> None:
        self.name = str(self.func)
        self.packet = str(self.func.overloadpacket)

    @property
    def operator(self) -> str:
        """The name without namespace and without the underscore of an in-place operator."""
        return self.packet.rpartition(".")[2].removesuffix("_")


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a dense copy."""
    return tensor.numel() * tensor.element_size()


def copies(*positions: int) -> Callable[[Call], Sizes]:
    """A dense copy of each argument, by position, that is not contiguous."""
    return lambda call: [size_of(call.args[i]) for i in positions if not call.args[i].is_contiguous()]


def copy_in_its_format(call: Call) -> Sizes:
    """A dense copy of the first argument, if it is neither contiguous nor dense in channels last."""
    tensor = call.args[0]
    return _copies_in(suggest_memory_format(tensor), tensor)


def adaptive_pooling_cuda(call: Call) -> Sizes:
    """A dense copy of an input that is not channels last; an image without batch is read by its strides."""
    tensor = call.args[0]
    return [] if tensor.dim() == 3 else _copy_unless_channels_last(tensor, tensor)


def adaptive_pooling_backward_cuda(call: Call) -> Sizes:
    """A dense copy of the gradient, unless the input is channels last: then its strides are read."""
    return _copy_unless_channels_last(call.args[1], call.args[0])


def _copy_unless_channels_last(data: torch.Tensor, tensor: torch.Tensor) -> Sizes:
    layout = suggest_memory_format(data)
    return _copies_in(layout, tensor) if layout is torch.contiguous_format else []


def pooling_backward_cuda(call: Call) -> Sizes:
    """The gradient, the input and a maximum's positions, in the input's format."""
    grad, data = call.args[:2]
    return _copies_in(suggest_memory_format(data), grad, data, *_positions(call))


def pooling_backward_cpu(call: Call) -> Sizes:
    """Everything that is read and written, in the incoming gradient's format."""
    grad = call.args[0]
    return _copies_in(suggest_memory_format(grad), grad, call.out[0], *_positions(call))


def _positions(call: Call) -> list[torch.Tensor]:
    return [tensor for tensor in call.tensors if not tensor.is_floating_point()]


def convolution_cuda(call: Call) -> Sizes:
    """Copies of what is not in the format that cuDNN computes in."""
    data, weight = call.args[:2]
    return _copies_in(_convolution_layout(data, weight), data, weight)


def convolution_backward_cuda(call: Call) -> Sizes:
    """As the forward pass, and the gradient."""
    grad, data, weight = call.args[:3]
    return _copies_in(_convolution_layout(data, weight), grad, data, weight)


def softmax_backward_cuda(call: Call) -> Sizes:
    """grad * output, and contiguous copies of it and of the output where they are not."""
    product, output = call.args[0] * call.args[1], call.args[1]  # on meta; its strides are what counts
    return [size_of(product), *(size_of(tensor) for tensor in (product, output) if not tensor.is_contiguous())]


def _is_blas_ready(matrix: torch.Tensor) -> bool:
    """Whether BLAS reads the matrix without a copy: one stride is 1, the other at least the length of a row."""
    rows, columns = matrix.shape[-2:]
    down, across = matrix.stride()[-2:]
    return bool((across == 1 and down >= max(1, columns)) or (down == 1 and across >= max(1, rows)))


def matrix_times_vector_cuda(call: Call) -> Sizes:
    """A copy of a matrix that BLAS cannot read directly, and of a vector with stride 0, such as a sum's gradient."""
    matrix, vector = call.args[:3][-2:]
    sizes = [] if _is_blas_ready(matrix) else [size_of(matrix)]
    return sizes if vector.stride(0) or vector.is_contiguous() else [*sizes, size_of(vector)]


def matrix_times_vector_cpu(call: Call) -> Sizes:
    """A copy of a matrix that BLAS cannot read directly."""
    matrix = call.args[:3][-2]
    return [] if _is_blas_ready(matrix) else [size_of(matrix)]


def product(call: Call) -> Sizes:
    """A copy of each matrix that BLAS cannot read directly; a summand, if any, comes before the two."""
    return [size_of(matrix) for matrix in call.args[:3][-2:] if not _is_blas_ready(matrix)]


def batched_product_cpu(call: Call) -> Sizes:
    """MKL multiplies the whole batch, or one matrix after the other, each copied if necessary."""
    left, right = call.args[:3][-2:]
    if left.shape[1] * left.shape[2] * right.shape[2] < 400:  # aten/src/ATen/native/LinearAlgebra.cpp: plain loops
        return []
    return [size_of(matrix[0]) for matrix in (left, right) if not _is_blas_ready(matrix)]


def convolution_cpu(call: Call) -> Sizes | str:
    """The unfolded input of one group; with several groups, also their outputs until they are concatenated.

    A dilated convolution unfolds one image at a time.
    """
    data, weight, bias, *rest = call.args
    backend = _convolution_backend(data, weight, bias, rest)
    layout = _convolution_layout(data, weight)
    if backend.name == "SlowDilated2d" and rest[5] == 1:
        return [*_copies_in(layout, data, weight), _columns(data[:1], weight, call.out[0], rest)]
    if backend.name != "Slow2d":
        return f"the {backend.name} convolution keeps its blocks in formats that depend on the processor"
    if rest[5] > 1 and layout is torch.channels_last:
        return "a grouped convolution of a channels-last input copies each group"
    columns = _columns(data, weight, call.out[0], rest)
    return [*_copies_in(layout, data, weight), _per_group([data.contiguous()], columns, call.out, rest[5])]


def convolution_backward_cpu(call: Call) -> Sizes | str:
    """As the forward pass, and the gradient in the input's layout."""
    grad, data, weight, bias_sizes, *rest, mask = call.args
    bias = grad.new_empty(bias_sizes) if bias_sizes and any(bias_sizes) else None
    backend = _convolution_backend(data, weight, bias, rest)
    layout = _convolution_layout(data, weight)
    if backend.name == "SlowDilated2d" and rest[5] == 1:
        sums = size_of(bias) if bias is not None and mask[2] else 0  # an image's, before they are added
        return [*_copies_in(layout, grad, data, weight), _columns(data[:1], weight, grad, rest), sums]
    if backend.name != "Slow2d":
        return f"the backward pass of the {backend.name} convolution keeps formats that depend on the processor"
    columns = _columns(data, weight, grad, rest)
    if rest[5] == 1:
        summed = sum(_half_sum(grad, [0, 2, 3])) if bias is not None and mask[2] else 0  # before there is grad_weight
        return [max(columns + sum(_copies_in(layout, grad, data, weight)), summed - size_of(weight))]
    return [*_copies_in(layout, data, weight), _per_group([grad, data.contiguous()], columns, call.out, rest[5])]


def _copies_in(layout: torch.memory_format, *tensors: torch.Tensor) -> Sizes:
    return [size_of(tensor) for tensor in tensors if not tensor.is_contiguous(memory_format=layout)]


def _per_group(slices: Sequence[torch.Tensor], columns: int, out: Sequence[torch.Tensor], groups: int) -> int:
    if groups == 1:
        return columns
    narrow = [tensor.narrow(1, 0, tensor.shape[1] // groups) for tensor in slices]
    return max(columns + sum(_copies_in(torch.contiguous_format, *narrow)), sum(size_of(tensor) for tensor in out))


def _convolution_backend(data: torch.Tensor, weight: torch.Tensor, bias: Any, rest: Sequence[Any]) -> Any:
    """What PyTorch chooses on the CPU for these shapes; the tensors it is asked with have one element each."""
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


def batch_norm_cpu(call: Call) -> Sizes | str:
    """Vectors with one number for each channel, in float32 at least; how many depends on the layout."""
    data, training = call.args[0], call.args[5]
    vector = data.shape[1] * max(data.element_size(), 4)
    if data.is_contiguous():
        return [2 * vector]
    if _is_half(data):
        return HALF_SUMS
    dense = data.is_contiguous(memory_format=_channels_last(data))
    return [(3 if training else 2) * vector if dense else 0 if training else 3 * vector]


def batch_norm_backward_cpu(call: Call) -> Sizes | str:
    """A map for x - mean where gradient and input share a dense layout, else the per-channel sums."""
    grad, data, mask = call.args[0], call.args[1], call.args[9]
    layouts = (torch.contiguous_format, _channels_last(data))
    if any(grad.is_contiguous(memory_format=f) and data.is_contiguous(memory_format=f) for f in layouts):
        return [size_of(data)] if mask[0] else []
    return HALF_SUMS if _is_half(data) else [data.shape[1] * data.element_size()]


def _channels_last(tensor: torch.Tensor) -> torch.memory_format:
    by_rank = {4: torch.channels_last, 5: torch.channels_last_3d}
    return by_rank.get(tensor.dim(), torch.contiguous_format)


def _takes_cudnn(data: torch.Tensor, weight: torch.Tensor | None, training: bool) -> bool:
    """Whether CUDA's batch norm is cuDNN's: affine, float32 or float64 weights, and no bfloat16."""
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


def batch_norm_backward_cuda(call: Call) -> Sizes:
    """cuDNN: a copy of the gradient that is not in the input's format, an expanded one too."""
    grad, data, weight = call.args[:3]
    if not _takes_cudnn(data, weight, training=call.args[7]):
        return batch_norm_backward_native(call)
    return _copies_in(suggest_memory_format(data), grad, data)


def batch_norm_backward_native(call: Call) -> Sizes:
    """A copy of each argument whose positions have not one common stride; an expanded gradient has."""
    return [size_of(tensor) for tensor in call.args[:2] if not is_view(tensor.flatten(2), tensor)]


def is_view(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    return bool(tensor.untyped_storage()._cdata == base.untyped_storage()._cdata)


def layer_norm_backward_cpu(call: Call) -> Sizes:
    """Copies, and for each thread one row of each parameter's gradient."""
    return [*copies(0, 1)(call), 2 * math.prod(call.args[2]) * call.args[1].element_size()]


def layer_norm_backward_cuda(call: Call) -> Sizes | str:
    """Contiguous copies of gradient and input."""
    rows = call.args[1].numel() // math.prod(call.args[2])
    if rows > 2**16:
        return "more than 65536 rows may be summed in parts, which depends on the device"
    return copies(0, 1)(call)


def group_norm_backward_cpu(call: Call) -> Sizes:
    """Two sums for each image and channel."""
    batch, channels = call.args[5:7]
    return [2 * batch * channels * call.args[1].element_size()]


def inverse(call: Call) -> Sizes:
    """The LU factors and the pivots."""
    matrix = call.args[0]
    return [size_of(matrix), 4 * matrix.numel() // matrix.shape[-1]]


def inverse_cpu(call: Call) -> Sizes:
    """As `inverse`, and the check of the pivots: a number, its cast, one boolean for each pivot."""
    matrix = call.args[0]
    return [*inverse(call), 12 + matrix.numel() // matrix.shape[-1]]


def check_errors_cpu(call: Call) -> Sizes:
    """A boolean for each matrix, and one for all."""
    return [1, call.args[0].numel()]


def repeat_cpu(call: Call) -> Sizes:
    """Four index vectors with eight bytes for each dimension."""
    return [32 * len(call.args[1])]


def mean_cpu(call: Call) -> Sizes:
    """The sum is divided by the count: a number and its cast. That of half types is a sum of a copy in float32."""
    data, out = call.args[0], call.out[0]
    if _is_half(data):
        return [4 * out.numel(), max(4 * data.numel(), 12)]
    return [8, out.element_size()]


def sum_cpu(call: Call) -> Sizes:
    """A copy in the dtype of the sum."""
    data, out = call.args[0], call.out[0]
    if data.dtype != out.dtype:
        return [data.numel() * out.element_size()]
    return _half_sum(data, call.args[1] if len(call.args) > 1 else None)


def _half_sum(data: torch.Tensor, dims: Sequence[int] | None) -> Sizes:
    """Half types are summed in float32, from a copy, over dimensions that do not lie in memory as one."""
    if not _is_half(data):
        return []
    wanted = [dim % data.dim() for dim in dims] if dims else range(data.dim())
    reduced = sorted((dim for dim in wanted if data.shape[dim] > 1), key=data.stride)
    steps = zip(reduced, reduced[1:], strict=False)
    if all(data.stride(b) == data.shape[a] * data.stride(a) for a, b in steps):
        return []
    kept = math.prod(size for dim, size in enumerate(data.shape) if dim not in wanted)
    return [4 * kept, 4 * data.numel()]


def _is_half(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() < 4


def binary_cpu(call: Call) -> Sizes:
    """Python numbers become host tensors, and operands of another dtype are cast before the kernel runs."""
    operands = [value for value in call.args[:2] if isinstance(value, torch.Tensor) or _number(value)]
    common = torch.result_type(*operands) if len(operands) == 2 else operands[0].dtype
    if call.operator == "div" and not (common.is_floating_point or common.is_complex):
        common = torch.get_default_dtype()
    sizes = []
    for value, argument in zip(call.args[:2], call.func._schema.arguments, strict=False):
        if isinstance(value, torch.Tensor):
            sizes.append(0 if value.dtype == common else value.numel() * common.itemsize)
        elif _number(value):
            # in the backward pass a number in a tensor's place is a saved tensor, which the tracker counts
            sizes.append(0 if call.in_backward and str(argument.type) == "Tensor" else _number(value))
            sizes.append(0 if isinstance(value, float) and common == torch.float64 else common.itemsize)
    return sizes


def _number(value: Any) -> int:
    """Bytes of the 0-dimensional tensor that a Python number becomes; 0 for anything else."""
    if isinstance(value, bool):
        return 1
    return 16 if isinstance(value, complex) else 8 if isinstance(value, int | float) else 0


def convolution_outputs(call: Call, out: torch.Tensor) -> torch.Tensor:
    """The output in the format that the convolution is computed in."""
    layout = _convolution_layout(*call.args[:2])
    return out if out.is_contiguous(memory_format=layout) else torch.empty_like(out, memory_format=layout)


def batch_norm_outputs(call: Call, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Outputs as the kernels make them: in the input's suggested format, and no statistics in eval."""
    data, training = call.args[0], call.args[5]
    statistics = out[1:] if training else tuple(tensor.new_empty(0) for tensor in out[1:])
    return (_in_suggested_format(data), *statistics)


def batch_norm_outputs_cpu(call: Call, out: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """As `batch_norm_outputs`; the statistics have the dtype of the weights."""
    image, *statistics = batch_norm_outputs(call, out)
    dtype = call.args[0].dtype if call.args[1] is None else call.args[1].dtype
    return image, *(tensor.to(dtype) for tensor in statistics)


def batch_norm_backward_outputs(call: Call, out: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    """The input's gradient in the input's suggested format, where it is asked for."""
    return (_in_suggested_format(call.args[1]) if call.args[9][0] else None, *out[1:])


def _in_suggested_format(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=suggest_memory_format(tensor))
