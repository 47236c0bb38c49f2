"""Global buffers of reductions on CUDA: partial results of several thread blocks, and their semaphores.

After aten/src/ATen/native/cuda/Reduce.cuh, `setReduceConfig`, and TensorIterator.cpp, `reorder_dimensions`. They depend
on the card's number of multiprocessors. The buffers of sums that an H200 allocated equal these to the byte
(tests/plugins/memory/test_memory_reductions.py); of other reductions none was compared.
"""

import math
from collections.abc import Sequence

import torch

from ctxbench.plugins.memory.kernel_rules import Call, Sizes, is_half

# Of an H100 (SXM) and an H200. An A100 has 108; below, few outputs are split into fewer parts.
MULTIPROCESSORS = 132
THREADS_A_MULTIPROCESSOR = 2048
_WARP, _THREADS = 32, 512
_LEAST_VALUES, _MOST_VALUES = 16, 256  # of a thread
_WITH_INDEX = ("argmax", "argmin", "max", "min")
_WELFORD = ("var", "std", "var_mean")
_IN_OWN_TYPE = ("amax", "amin", "any", "all")

Dimension = tuple[int, int, int]  # size, stride of the output (0 where it is reduced), stride of the input


def reduction_cuda(call: Call) -> Sizes:
    """The partial results and their semaphores; before them a copy in the dtype of the sum."""
    data, out = call.args[0], call.out[0]
    at = 2 if call.operator in ("linalg_vector_norm", "norm") else 1
    given = call.args[at] if len(call.args) > at else None
    cast = data.dtype is not out.dtype and call.operator in ("sum", "mean", "prod") and not is_half(data)
    buffers = partial_results(data, given, _bytes_a_result(call.operator, data, out), call.operator in _WELFORD)
    return [*([data.numel() * out.element_size()] if cast else []), *buffers]


def partial_results(
    data: torch.Tensor, dims: Sequence[int] | int | None, result_bytes: int, narrow: bool = False
) -> Sizes:
    """Bytes of both buffers for a tensor that is reduced over `dims`, over all if there are none; `narrow` of var."""
    wanted = range(data.dim()) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    reduced = {dim % data.dim() for dim in wanted} if data.dim() else set()
    shape = _iterated(data, reduced)
    inputs = math.prod(size for size, out, _ in shape if not out)
    outputs = math.prod(size for size, out, _ in shape if out)
    if inputs * outputs == 0:
        return []
    reductions = sum(not out for _, out, _ in shape)
    along = not shape or reductions == len(shape) or shape[0][2] < shape[reductions][2]
    fastest = shape[0 if along else reductions][2] if shape else 1
    first, second = (inputs, outputs) if along else (outputs, inputs)
    vector = 1
    if fastest == 1 and along and first > 128 and len(shape) == 1:
        first //= 2 if narrow else 4
    elif fastest == 1 and not along:
        vector = _output_vector(shape, reductions)
        first //= vector
    width, height = _block(first, second, _THREADS // vector)
    step_in, step_out = (width, 1) if along else (1, width)
    splits_warps = -(-inputs // step_in) >= min(16 * height, _MOST_VALUES)
    if splits_warps:
        step_in *= height
    else:
        step_out *= height
    values = -(-inputs // step_in)
    grid = -(-(outputs // vector) // step_out)
    target = MULTIPROCESSORS * (THREADS_A_MULTIPROCESSOR // (width * height))
    if not splits_warps or values < _MOST_VALUES or grid > target:
        return []
    parts = max(min(-(-target // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    if parts <= 1:
        return []
    return [result_bytes * outputs * parts * (1 if along else width * vector), 4 * grid]


def _bytes_a_result(operator: str, data: torch.Tensor, out: torch.Tensor) -> int:
    """Bytes of what a thread adds up: a number, with an index, or a mean, its moment and two counts."""
    wide = 8 if data.dtype is torch.float64 or not data.is_floating_point() else 4
    if operator in _WELFORD:
        return 4 * wide
    if operator in _WITH_INDEX:
        return 16
    return out.element_size() if operator in _IN_OWN_TYPE else wide


def _iterated(data: torch.Tensor, reduced: set[int]) -> list[Dimension]:
    """The dimensions as the kernel walks them: reduced ones first, then by stride; neighbours in memory are one."""
    made, stride = list[Dimension](), 1
    for dim in reversed(range(data.dim())):
        size = data.shape[dim]
        made.append((size, 0 if dim in reduced else stride, data.stride(dim)))
        stride *= 1 if dim in reduced else size
    for last in range(1, len(made)):
        at = last
        for before in reversed(range(last)):
            order = _order(made[before], made[at])
            if order > 0:
                made[before], made[at] = made[at], made[before]
                at = before
            elif order < 0:
                break
    joined = made[:1]
    for size, *strides in made[1:]:
        width, *inner = joined[-1]
        if width == 1 or size == 1 or all(width * a == b for a, b in zip(inner, strides, strict=True)):
            kept = strides if width == 1 else inner
            joined[-1] = (width * size, kept[0], kept[1])
        else:
            joined.append((size, strides[0], strides[1]))
    return joined


def _order(first: Dimension, second: Dimension) -> int:
    if (first[1] == 0) != (second[1] == 0):
        return 1 if second[1] == 0 else -1
    for a, b in zip(first[1:], second[1:], strict=True):
        if a and b and a != b:
            return -1 if a < b else 1
        if a and b and first[0] > second[0]:
            return 1
    return 0


def _output_vector(shape: Sequence[Dimension], at: int) -> int:
    """Outputs that a thread reads at once: 4, 2 or 1, as sizes and strides are multiples of it."""
    numbers = [shape[at][0], *(stride for number, (_, _, stride) in enumerate(shape) if number != at)]
    return next(size for size in (4, 2, 1) if all(number % size == 0 for number in numbers))


def _block(first: int, second: int, threads: int) -> tuple[int, int]:
    """Width and height of a thread block for these sizes."""
    across, down = (1 << max(0, size.bit_length() - 1) if size else 1 for size in (first, second))
    width = min(across, _WARP)
    height = min(down, threads // width)
    return min(across, threads // height), height
