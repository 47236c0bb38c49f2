"""The byte rules behind the table in `kernels.py`: from one operator call to the blocks inside its kernel."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

Sizes = Sequence[int]

ONEDNN = "oneDNN multiplies half types in a scratchpad, whose size depends on the instruction set and on the threads"
# By dtype, whether oneDNN multiplies it on this processor, under the cap of ONEDNN_MAX_CPU_ISA.
_ONEDNN_HALF = {
    torch.bfloat16: lambda: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    torch.float16: lambda: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
}


@dataclass
class Call:
    """One operator call: its arguments, the tensors among them and, after it ran, its outputs."""

    func: Any
    args: Sequence[Any]
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
    return copies_in(suggest_memory_format(tensor), tensor)


def adaptive_pooling_cuda(call: Call) -> Sizes:
    """A dense copy of an input that is not channels last; an image without batch is read by its strides."""
    tensor = call.args[0]
    return [] if tensor.dim() == 3 else _copy_unless_channels_last(tensor, tensor)


def adaptive_pooling_backward_cuda(call: Call) -> Sizes:
    """A dense copy of the gradient, unless the input is channels last: then its strides are read."""
    return _copy_unless_channels_last(call.args[1], call.args[0])


def _copy_unless_channels_last(data: torch.Tensor, tensor: torch.Tensor) -> Sizes:
    layout = suggest_memory_format(data)
    return copies_in(layout, tensor) if layout is torch.contiguous_format else []


def pooling_backward_cuda(call: Call) -> Sizes:
    """The gradient, the input and a maximum's positions, in the input's format."""
    grad, data = call.args[:2]
    return copies_in(suggest_memory_format(data), grad, data, *_positions(call))


def pooling_backward_cpu(call: Call) -> Sizes:
    """Everything that is read and written, in the incoming gradient's format."""
    grad = call.args[0]
    return copies_in(suggest_memory_format(grad), grad, call.out[0], *_positions(call))


def _positions(call: Call) -> list[torch.Tensor]:
    return [tensor for tensor in call.tensors if not tensor.is_floating_point()]


def softmax_backward_cuda(call: Call) -> Sizes:
    """grad * output, and contiguous copies of it and of the output where they are not."""
    product, output = call.args[0] * call.args[1], call.args[1]  # on meta; its strides are what counts
    return [size_of(product), *(size_of(tensor) for tensor in (product, output) if not tensor.is_contiguous())]


def _is_blas_ready(matrix: torch.Tensor) -> bool:
    """Return whether BLAS reads the matrix without a copy: one stride is 1, the other at least the length of a row."""
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


def unless_onednn(rule: Callable[[Call], Sizes]) -> Callable[[Call], Sizes | str]:
    """A rule for products on the CPU: its bytes are not known where oneDNN multiplies."""
    return lambda call: ONEDNN if _takes_onednn(*call.args[:3][-2:]) else rule(call)


def _takes_onednn(left: torch.Tensor, right: torch.Tensor) -> bool:
    """aten/src/ATen/native/mkldnn/Matmul.cpp: half types that the processor can, above 16^3 products of numbers."""
    supported = _ONEDNN_HALF.get(left.dtype)
    if supported is None or not torch.backends.mkldnn.enabled or not torch.backends.mkldnn.is_available():
        return False
    columns = right.shape[-1] if right.dim() > 1 else 1
    return left.numel() * columns > 16**3 and bool(supported())


def copies_in(layout: torch.memory_format, *tensors: torch.Tensor) -> Sizes:
    return [size_of(tensor) for tensor in tensors if not tensor.is_contiguous(memory_format=layout)]


def is_view(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    return bool(tensor.untyped_storage()._cdata == base.untyped_storage()._cdata)


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


def roll_cpu(call: Call) -> Sizes:
    """One dimension is rolled after the other, a map for each but the last; without dimensions a dense copy."""
    dims = len(call.args[2]) if len(call.args) > 2 else 0
    return [size_of(call.args[0])] * (dims - 1) if dims else copies(0)(call)


def roll_cuda(call: Call) -> Sizes:
    """The same; a single dimension is read from a dense copy."""
    return roll_cpu(call) or copies(0)(call)


def repeat_cpu(call: Call) -> Sizes:
    """Four index vectors with eight bytes for each dimension; none for a result without elements."""
    return [32 * len(call.args[1])] if call.out[0].numel() else []


def mean_cpu(call: Call) -> Sizes:
    """The sum is divided by the count: a number and its cast. That of half types is a sum of a copy in float32."""
    data, out = call.args[0], call.out[0]
    if is_half(data):
        return [4 * out.numel(), max(4 * data.numel() + partial_sums(data, out, 4), 12)]
    return [max(8 + out.element_size(), partial_sums(data, out, out.element_size()))]


def sum_cpu(call: Call) -> Sizes:
    """A copy in the dtype of the sum."""
    data, out = call.args[0], call.out[0]
    if data.dtype != out.dtype:
        return [data.numel() * out.element_size() + partial_sums(data, out, out.element_size())]
    copied = half_sum(data, call.args[1] if len(call.args) > 1 else None)
    return [*copied, partial_sums(data, out, 4 if copied else out.element_size())]


# Elements from which PyTorch divides work among threads (ATen/Parallel.h).
GRAIN_SIZE = 32_768


def partial_sums(data: torch.Tensor, out: torch.Tensor, element_size: int) -> int:
    """Bytes of the sums of several threads, one for each, where a tensor of GRAIN_SIZE or more becomes one number."""
    threads = torch.get_num_threads()
    return threads * element_size if threads > 1 and out.numel() == 1 and data.numel() >= GRAIN_SIZE else 0


def whole_cpu(call: Call) -> Sizes | str:
    """Nothing, unless several threads reduce a tensor to one number."""
    data, out = call.args[0], call.out[0]
    return "each thread keeps a partial result" if partial_sums(data, out, 1) else []


def half_sum(data: torch.Tensor, dims: Sequence[int] | None) -> Sizes:
    """Half types are summed in float32, from a copy, over dimensions that do not lie in memory as one."""
    if not is_half(data):
        return []
    wanted = [dim % data.dim() for dim in dims] if dims else range(data.dim())
    reduced = sorted((dim for dim in wanted if data.shape[dim] > 1), key=data.stride)
    if all(data.stride(b) == data.shape[a] * data.stride(a) for a, b in pairwise(reduced)):
        return []
    kept = math.prod(size for dim, size in enumerate(data.shape) if dim not in wanted)
    return [4 * kept, 4 * data.numel()]


def is_half(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() < 4


def dropout_mask_cuda(call: Call) -> Sizes | str:
    """None where whole channels are dropped: one number each, as on meta."""
    mask = call.args[0]
    if mask.dim() > 2 and mask.shape[2:].numel() == 1:
        return []
    return "CUDA's dropout keeps a mask of one byte an element, meta's one of a float"


def topk_cuda(call: Call) -> Sizes | str:
    """None in slices of up to 1024 numbers."""
    data, _, dim = (*call.args, -1)[:3]
    return [] if data.shape[dim] <= 1024 else "long slices are sorted, with a workspace"


def index(call: Call) -> Sizes:
    """Indices of 32 bits are cast to 64."""
    return [8 * tensor.numel() for tensor in _indices(call) if tensor.dtype == torch.int32]


def index_put_cuda(call: Call) -> Sizes:
    """Values that are added are sorted by their places: the places, their order, both sorted; and a dense value."""
    value, is_added = call.args[2], len(call.args) > 3 and call.args[3]
    if not is_added:
        return index(call)
    places = math.prod(torch.broadcast_shapes(*(tensor.shape for tensor in _indices(call))))
    return [*index(call), *[8 * places] * 4, *copies_in(torch.contiguous_format, value)]


def _indices(call: Call) -> list[torch.Tensor]:
    return [tensor for tensor in call.args[1] if tensor is not None]


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


def clamp_cpu(call: Call) -> Sizes | str:
    """Bounds of another dtype are cast."""
    bounds = [each for each in call.args[1:] if isinstance(each, torch.Tensor) and each.dtype != call.out[0].dtype]
    reason = unless_bound_is_trained(call)
    return reason if isinstance(reason, str) else [each.numel() * call.out[0].element_size() for each in bounds]


def ldexp(call: Call) -> Sizes:
    """Two to the power of an exponent that is no integer."""
    return [size_of(call.args[1])] if call.args[1].is_floating_point() else []


def power_cpu(call: Call) -> Sizes:
    """As of other functions of two operands; an exponent that is a number stays one."""
    return binary_cpu(call) if isinstance(call.args[1], torch.Tensor) else []


def normal_cpu(call: Call) -> Sizes:
    """Numbers with a deviation of their own: the least one is read. With one for all: a second map."""
    if call.packet.endswith("_"):
        return []
    deviation, out = call.args[1] if len(call.args) > 1 else 1.0, call.out[0]
    return [2 * out.element_size() + 9] if isinstance(deviation, torch.Tensor) else [size_of(out)]


def triangle_cpu(call: Call) -> Sizes:
    """A copy of matrices that do not follow each other in memory (aten/src/ATen/native/TriangularOps.cpp)."""
    data = call.args[0]
    if data.is_contiguous():
        return []
    wanted = data.shape[-2:].numel()
    for size, stride in zip(reversed(data.shape[:-2]), reversed(data.stride()[:-2]), strict=True):
        if stride != wanted:
            return [size_of(data)]
        wanted *= size
    return []


def dropout_backward_cpu(call: Call) -> Sizes:
    """The product with the mask, and the factor as a number and its cast."""
    return [size_of(call.out[0]), 8, call.out[0].element_size()]


def degrees_cpu(call: Call) -> Sizes:
    """The factor as a number, and its cast."""
    return [8, call.out[0].element_size()]


def scatter_cpu(call: Call) -> Sizes:
    """Half types: a copy of the whole map in float32."""
    return [4 * call.args[0].numel()] if is_half(call.args[0]) else []


def deviation_cpu(call: Call) -> Sizes:
    """Of all numbers in float32 or float64, the mean and the sum of squares."""
    data, dims = call.args[0], call.args[1] if len(call.args) > 1 else None
    is_of_all = not isinstance(dims, list | tuple) or len(dims) in (0, data.dim())
    return [] if is_half(data) or not is_of_all else [16]


def unless_trained(place: int, reason: str) -> Callable[[Call], Sizes | str]:
    """None, or a reason if the argument at a place is a tensor with a gradient."""

    def inner(call: Call) -> Sizes | str:
        value = call.args[place] if len(call.args) > place else None
        has_gradient = torch.is_grad_enabled() and isinstance(value, torch.Tensor) and value.requires_grad
        return reason if has_gradient else []

    return inner


unless_bound_is_trained = unless_trained(1, "the gradient of a bound takes other operators than on meta")
_extreme = unless_trained(0, "the gradient of a single extreme takes other operators than on meta")


def extreme_cpu(call: Call) -> Sizes | str:
    """None; a single extreme of a map has another gradient on the CPU than on meta."""
    return [] if len(call.args) > 1 else _extreme(call)


def _number(value: Any) -> int:
    """Bytes of the 0-dimensional tensor that a Python number becomes; 0 for anything else."""
    if isinstance(value, bool):
        return 1
    return 16 if isinstance(value, complex) else 8 if isinstance(value, int | float) else 0
