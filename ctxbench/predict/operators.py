"""From an operator that runs on meta to the kernels that it starts on a GPU, and what each of them has to do.

How many multiply-accumulates a product has is what `ctxbench.macs.rules` says; here are the sides of its matrices, the
bytes, and the class. Bytes are those of each distinct argument and output, once, unless a kernel reads them twice.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ctxbench.macs.rules import FREE, OTHERS, PRODUCTS
from ctxbench.memory import kernels
from ctxbench.memory.kernel_rules import Call
from ctxbench.predict.work import Class, Product, Work, winograd_of

# fmt: off
# No kernel: memory is taken or named.
_NOTHING = frozenset((
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias",
    "resize", "set", "lift_fresh", "detach", "alias", "scalar_tensor", "_linalg_check_errors",
))
# The first argument is written, not read.
_OVERWRITES = frozenset(("copy", "fill", "zero", "uniform", "normal", "bernoulli"))
_REDUCTIONS = frozenset((
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "prod", "linalg_vector_norm", "norm",
    "var", "std", "var_mean", "cumsum", "logsumexp", "_log_softmax", "_log_softmax_backward_data",
))
_SOFTMAX = frozenset(("_softmax", "_softmax_backward_data", "_safe_softmax"))
# fmt: on
_SOLVERS = ("linalg_", "_linalg_", "cholesky", "lu_", "triangular_solve", "svd", "qr")


def works(call: Call, inner: Sequence[int]) -> list[Work]:
    """The kernels of an operator call that has run; `inner` are the blocks that it fills for itself, in bytes.

    A block inside the kernel is a copy of an argument, or a map as large: a kernel that reads and writes it.
    """
    if call.func.is_view or call.operator in _NOTHING or not any(t.is_meta for t in (*call.tensors, *call.out)):
        return []
    copies = [Work("elementwise", 2 * size) for size in inner]
    return [*copies, *(each for each in _kernels(call) if each.bytes or each.product)]


def _kernels(call: Call) -> list[Work]:
    name = call.operator
    if not call.packet.startswith("aten."):
        return [Work("unknown", _moved(call))]
    if name == "convolution":
        return _convolution(call)
    if name == "convolution_backward":
        return _convolution_backward(call)
    if "attention" in name and f"aten::{name}" in PRODUCTS:
        return [Work("fused attention", _moved(call), flops=2.0 * _macs(call))]
    if f"aten::{name}" in PRODUCTS:
        return [_product(call)]
    if name in _SOFTMAX:
        return [_softmax(call)]
    if name in ("native_batch_norm", "native_batch_norm_backward"):
        return [_batch_norm(call)]
    if name.startswith("_fft_"):
        return [_fourier(call)]
    if name.startswith(_SOLVERS) and name not in _REDUCTIONS:
        return [_solver(call)]
    return [Work(_class_of(call), _moved(call))]


def _class_of(call: Call) -> Class:
    name = call.operator
    if name in _REDUCTIONS:
        return "row reduction"
    if name.startswith("native_") and "norm" in name:
        return "norm"
    listed = f"aten::{name}" in FREE or f"aten::{name}" in OTHERS or name in kernels.FREE
    return "elementwise" if listed or torch.Tag.pointwise in call.func.tags else "unknown"


def _extent(tensor: Tensor) -> int:
    """Bytes in memory: a dimension with stride 0 is there once."""
    if not tensor.is_meta or not tensor.numel():
        return 0
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return math.prod(sizes) * tensor.element_size()


def _distinct(tensors: Sequence[Tensor]) -> int:
    """Bytes of tensors, each part of memory once."""
    places = {(t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride()): t for t in tensors}
    return sum(map(_extent, places.values()))


def _moved(call: Call) -> int:
    """Bytes read and written."""
    read = call.tensors[1:] if call.operator in _OVERWRITES else call.tensors
    return _distinct(read) + _distinct(call.out)


def _macs(call: Call) -> int:
    output: Any = call.out[0] if len(call.out) == 1 else call.out
    return PRODUCTS[f"aten::{call.operator}"](call.args, output)


def _product(call: Call) -> Work:
    """`mm`, `bmm` and their kin: the left matrix [batch, m, k] comes first, or after a summand."""
    left = call.args[1] if call.operator.startswith(("add", "baddbmm")) else call.args[0]
    batch, rows, depth = (1, 1, 1, *left.shape)[-3:]
    sides = Product(int(batch), int(rows), _macs(call) // left.numel(), int(depth))
    return Work(sides.kind, _moved(call), sides)


def _convolution(call: Call) -> list[Work]:
    data, weight, bias, stride, _, dilation, transposed, _, groups = call.args
    places = data if transposed else call.out[0]
    work = _unfolded(places, weight, _macs(call), (stride, dilation, transposed, groups), _moved(call), 0)
    # cuDNN's output first, then a kernel that adds the bias (aten/src/ATen/native/Convolution.cpp)
    return [work] if bias is None else [work, Work("elementwise", 2 * _extent(call.out[0]))]


def _convolution_backward(call: Call) -> list[Work]:
    """A convolution for each gradient that is asked for: the input's, the weight's; the bias's is a sum."""
    grad, data, weight, _, stride, _, dilation, transposed, _, groups, mask = call.args
    macs = _macs(call) // max(1, sum(mask[:2]))
    places = data if transposed else grad
    how = (stride, dilation, transposed, groups)
    found = []
    if mask[0]:
        found.append(_unfolded(places, weight, macs, how, _distinct((grad, weight)) + _extent(data), 1))
    if mask[1]:
        found.append(_unfolded(places, weight, macs, how, _distinct((grad, data)) + _extent(weight), 2))
    if mask[2]:
        found.append(Work("row reduction", _extent(grad)))
    return found


def _unfolded(places: Tensor, weight: Tensor, macs: int, how: tuple[Any, ...], moved: int, turn: int) -> Work:
    """A convolution as the product that it unfolds to: `places` [B, C, *positions] by channels and kernel.

    `turn` 0: the output is made, 1: the input's gradient (outputs are summed), 2: the weight's (positions are summed).
    """
    stride, dilation, transposed, groups = how
    positions = places.shape[0] * math.prod(places.shape[2:])
    depth = int(places.shape[1] // groups if transposed else math.prod(weight.shape[1:]))
    across = macs // (positions * depth * groups)
    sides = _turned(positions, across, depth, turn)
    product = Product(groups, *sides)
    kernel = tuple(weight.shape[2:])
    if groups > 1 and weight.shape[1] == 1:
        return Work("depthwise convolution", moved, product)
    if set(kernel) == {1} and groups == 1:
        return Work("convolution 1x1", moved, product)
    if kernel != (3, 3) or groups > 1 or transposed or set(dilation) != {1}:
        return Work("other convolution", moved, product)
    if set(stride) != {1}:
        return Work("convolution 3x3", moved, product)
    images, _, height, width = places.shape
    tiles = winograd_of(images, height, width, weight.shape[1], weight.shape[0])
    return Work("convolution 3x3", moved, product, Product(tiles.batch, *_turned(tiles.m, tiles.n, tiles.k, turn)))


def _turned(m: int, n: int, k: int, turn: int) -> tuple[int, int, int]:
    return ((m, n, k), (m, k, n), (n, k, m))[turn]


def _softmax(call: Call) -> Work:
    """The row is read for its sum and again for the result."""
    rows: Tensor = call.args[1] if "backward" in call.operator else call.args[0]
    dim = next(value for value in call.args if isinstance(value, int))
    return Work(
        "row reduction",
        _moved(call),
        row_bytes=rows.shape[dim] * rows.element_size() if rows.dim() else 0,
        again_bytes=_extent(rows),
    )


def _batch_norm(call: Call) -> Work:
    """In training a channel is read for its sums and again for the result; no cache holds it meanwhile."""
    backward = "backward" in call.operator
    training = call.args[7] if backward else call.args[5]
    again = sum(_extent(tensor) for tensor in call.args[: 2 if backward else 1]) if training else 0
    return Work("norm", _moved(call) + again)


def _fourier(call: Call) -> Work:
    """5 n log2(n) operations for a transform of n points, and a pass over the map for each dimension."""
    data, dims = call.args[0], call.args[1]
    larger = max(call.tensors[0].numel(), call.out[0].numel())
    points = math.prod(data.shape[dim] for dim in dims)
    return Work("FFT", _moved(call) * len(dims), flops=5.0 * larger * math.log2(max(2, points)))


def _solver(call: Call) -> Work:
    """About 2 n^3 operations in n steps for each matrix [n, n]; the matrices of a batch at the same time."""
    matrix = max(call.tensors, key=lambda tensor: tensor.dim())
    size = int(matrix.shape[-1])
    return Work("solver", _moved(call), flops=2.0 * matrix.numel() * size, steps=size)
