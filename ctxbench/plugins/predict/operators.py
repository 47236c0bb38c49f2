"""From an operator that runs on meta to the kernels that it starts on a GPU, and what each of them has to do.

How many multiply-accumulates a product has is what `ctxbench.plugins.macs.rules` says; here are the sides of its
matrices, the bytes, and the class. Bytes are those of each distinct argument and output, once, unless a kernel reads
them twice.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ctxbench.base.call_sites import CallSite
from ctxbench.meta.calls import Map, Operation
from ctxbench.plugins.macs.rules import FREE, OTHERS, PRODUCTS
from ctxbench.plugins.memory import kernels
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile, Phase
from ctxbench.plugins.predict.rates import GRADIENT_LAUNCHES
from ctxbench.plugins.predict.work import (
    ADD_S,
    BLOCK_RATE,
    CACHED,
    LONG,
    ROWS,
    SECTOR,
    THREAD_S,
    WARP,
    WINDOW_READS,
    Class,
    Convolution,
    Product,
    Turn,
    Work,
)

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
    "var", "std", "var_mean", "logsumexp", "_log_softmax", "_log_softmax_backward_data",
    "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward",
))
# Several passes, single numbers from anywhere, or sums to which many add at a time.
_IRREGULAR = re.compile(
    r"sort|topk|kthvalue|median|^mode|unique|^(log)?cum|histc|bucketize|searchsorted|isin|nonzero|index|gather"
    r"|(?<!diagonal_)(?<!select_)(?<!slice_)scatter|embedding|grid_sampler|masked_select|^take|^put|repeat_interleave"
    r"|unpool|col2im|unfold_backward|(pad\dd|upsample_\w{1,30})_backward"
)
# Elementwise, and more than a few instructions a number: on a CPU, these count.
_TRANSCENDENTAL = frozenset((
    "exp", "log", "sigmoid", "tanh", "gelu", "gelu_backward", "elu", "elu_backward", "silu", "silu_backward",
    "softplus", "softplus_backward", "pow", "sqrt", "rsqrt", "erf", "sin", "cos", "norm",
))
_COPIES = frozenset(("copy", "clone", "contiguous", "_to_copy", "cat"))
_SOFTMAX = frozenset(("_softmax", "_safe_softmax"))
# Pixels of which each output takes a mean. In a contiguous map one thread for each output pixel takes the maps of the
# batch one after the other; in the gradient, a thread for each number adds to them (ATen's UpSample*.cu).
_UPSAMPLED_FROM = {
    "upsample_linear1d": 2, "upsample_bilinear2d": 4, "upsample_trilinear3d": 8, "upsample_bicubic2d": 16
}
# fmt: on
# The logarithms of the denormal numbers of float32.
DENORMAL_LOGS = (-103.3, -87.3)
_SOLVERS = ("linalg_", "_linalg_", "cholesky", "lu_", "triangular_solve", "svd", "qr")


@dataclass(frozen=True)
class Operator:
    """An operator call of a pass: its name, the place that it belongs to, and its kernels.

    To start it takes the host as long as `launches` usual operators. `views` are calls before it that start no kernel.
    `makes_denormals`: it writes logits whose exponentials are denormal numbers.
    """

    name: str
    phase: Phase
    place: CallSite
    works: tuple[Work, ...]
    dtype: str = "float32"
    launches: float = 1.0
    views: int = 0
    makes_denormals: bool = False


def operators_of(module: nn.Module, *inputs: Any, **options: Any) -> list[Operator]:
    """The operators of one pass, which takes what `predict_peak` takes, and raises what that raises."""
    return operators_in(predict_peak(module, *inputs, **options))


def operators_in(profile: MemoryProfile) -> list[Operator]:
    """The operators of a recorded pass that start kernels, the optimizer's last.

    In training on a GPU the gradient of each parameter is one more, which takes the host alone.
    """
    kept = Operator("AccumulateGrad", "backward", CallSite(node="weights"), (), launches=GRADIENT_LAUNCHES)
    found, views = list[Operator](), 0
    for step in profile.timeline:
        own = started(step.call, step.phase, step.place, step.inner)
        found += [replace(each, views=views) for each in own]
        views = 0 if own else views + 1
    last = sum(each.phase != "optimizer" for each in found)
    return [*found[:last], *[kept] * (profile.trained if profile.device != "cpu" else 0), *found[last:]]


def started(call: Operation, phase: Phase, place: CallSite, inner: Sequence[int] = ()) -> list[Operator]:
    """The operator of a call, if it starts kernels."""
    name = call.operator if phase == "optimizer" else call.packet.removeprefix("aten.")
    kernels = tuple(works(call, inner))
    made = _makes_denormals(call)
    return [Operator(name, phase, place, kernels, _dtype_of(call), makes_denormals=made)] if kernels else []


def _makes_denormals(call: Operation) -> bool:
    """Return whether a mask of a number, such as Swin's -100, has an exponential below the least normal float32."""
    value = call.args[2] if call.operator == "masked_fill" else None
    return isinstance(value, int | float) and DENORMAL_LOGS[0] < value < DENORMAL_LOGS[1]


def _dtype_of(call: Operation) -> str:
    """The dtype of an operator's arithmetic: that of its first floating-point tensor."""
    return next((each.dtype for each in (*call.given, *call.out) if each.is_floating_point), "float32")


def works(call: Operation, inner: Sequence[int] = ()) -> list[Work]:
    """The kernels of an operator call; `inner` are the blocks that it fills for itself, in bytes.

    A block inside the kernel is a copy of an argument, or a map as large: a kernel that reads and writes it. Those of
    group norm are sums, which its first kernel makes.
    """
    if call.operator.startswith("_foreach_") and not call.out:
        call = replace(call, out=call.args[0])
    if call.is_view or call.operator in _NOTHING or not any(each.on_device for each in (*call.given, *call.out)):
        return []
    if call.operator == "_softmax_backward_data":
        return _softmax_backward(call)
    copies = [Work("elementwise", 2 * size) for size in inner if "group_norm" not in call.operator]
    return [*copies, *(each for each in _kernels(call) if each.bytes or each.product)]


def _kernels(call: Operation) -> list[Work]:
    name = call.operator
    if not call.packet.startswith("aten."):
        return [Work("unknown", _moved(call))]
    if name == "convolution":
        return _convolution(call)
    if name == "convolution_backward":
        return _convolution_backward(call)
    if "attention" in name and f"aten::{name}" in PRODUCTS:
        keys = call.args[2 if "backward" in name else 1].shape[-2]
        return [Work("fused attention", _moved(call), flops=2.0 * _macs(call), form=_length(keys))]
    if f"aten::{name}" in PRODUCTS:
        return [_product(call)]
    if name in _SOFTMAX:
        return [_softmax(call)]
    if name in ("native_batch_norm", "native_batch_norm_backward"):
        return [_batch_norm(call)]
    if name in ("native_layer_norm", "_fused_rms_norm"):
        return [_layer_norm(call)]
    if name.startswith("native_group_norm"):
        return _group_norm(call)
    if "_pool" in name:
        return [_pooling(call)]
    if name.removesuffix("_backward") in _UPSAMPLED_FROM and call.args[0].is_contiguous:
        return [_upsampling(call)]
    if name.startswith("_fft_"):
        return [_fourier(call)]
    if name.startswith(_SOLVERS) and name not in _REDUCTIONS:
        return [_solver(call)]
    turn: Turn = "input gradient" if name.endswith("norm_backward") else "forward"
    across = _across(call) if call.is_pointwise or name in ("copy", "clone", "contiguous") else 0
    kind = _class_of(call)
    form = (CACHED if name != "cat" and _across(call) else ROWS) if kind == "copy" else 0.0
    return [Work(kind, _moved(call), turn=turn, across_bytes=across, form=form)]


def _class_of(call: Operation) -> Class:
    name = call.operator
    if name in _REDUCTIONS:
        return "row reduction"
    if _IRREGULAR.search(name):
        return "irregular"
    if name.startswith(("native_", "_fused_rms_")) and "norm" in name:
        return "norm"
    if name in _TRANSCENDENTAL:
        return "transcendental"
    if name in _COPIES:
        return "copy"
    listed = f"aten::{name}" in FREE or f"aten::{name}" in OTHERS or name in kernels.FREE
    is_pointwise = call.is_pointwise or name.startswith("_foreach_")
    return "elementwise" if listed or is_pointwise else "unknown"


def _extent(tensor: Map) -> int:
    """Bytes in memory: a dimension with stride 0 is there once."""
    if not tensor.on_device or not tensor.numel():
        return 0
    sizes = [size for size, stride in zip(tensor.shape, tensor.strides, strict=True) if stride]
    return math.prod(sizes) * tensor.itemsize


def _distinct(tensors: Sequence[Map]) -> int:
    """Bytes of tensors, each part of memory once."""
    places = {(each.storage, each.offset, each.shape, each.strides): each for each in tensors}
    return sum(map(_extent, places.values()))


def _moved(call: Operation) -> int:
    """Bytes read and written."""
    read = call.given[1:] if call.operator in _OVERWRITES else call.given
    return _distinct(read) + _distinct(call.out)


def _macs(call: Operation) -> int:
    output: Any = call.out[0] if len(call.out) == 1 else call.out
    return PRODUCTS[f"aten::{call.operator}"](call.args, output)


def _product(call: Operation) -> Work:
    """`mm`, `bmm` and their kin: the left matrix [batch, m, k] comes first, or after a summand."""
    left = call.args[1] if call.operator.startswith(("add", "baddbmm")) else call.args[0]
    batch, rows, depth = (1, 1, 1, *left.shape)[-3:]
    sides = Product(int(batch), int(rows), _macs(call) // left.numel(), int(depth))
    return Work(sides.kind, _moved(call), sides, form=sides.form)


def _convolution(call: Operation) -> list[Work]:
    data, weight, bias, stride, _, dilation, transposed, _, groups = call.args
    work = _convolved(data, weight, call.out[0], (stride, dilation, groups, transposed), "forward")
    # cuDNN's output first, then a kernel that adds the bias (aten/src/ATen/native/Convolution.cpp)
    return [work] if bias is None else [work, Work("elementwise", 2 * _extent(call.out[0]))]


def _convolution_backward(call: Operation) -> list[Work]:
    """A convolution for each gradient that is asked for: the input's, the weight's; the bias's is a sum."""
    grad, data, weight, _, stride, _, dilation, transposed, _, groups, mask = call.args
    turns: tuple[Turn, Turn] = ("input gradient", "weight gradient")
    how = (stride, dilation, groups, transposed)
    found = [_convolved(data, weight, grad, how, turn) for turn, wanted in zip(turns, mask[:2], strict=True) if wanted]
    if mask[2]:
        found.append(Work("row reduction", _extent(grad)))
    return found


def _convolved(data: Map, weight: Map, out: Map, how: tuple[Any, ...], turn: Turn) -> Work:
    stride, dilation, groups, transposed = how
    dims = weight.ndim - 2
    return Convolution(
        images=data.shape[0],
        inputs=data.shape[1],
        outputs=out.shape[1],
        size=tuple(data.shape[2:]),
        out=tuple(out.shape[2:]),
        kernel=tuple(weight.shape[2:]),
        stride=tuple(stride) * (dims // len(stride)),
        dilation=tuple(dilation) * (dims // len(dilation)),
        groups=groups,
        transposed=transposed,
        channels_last=data.is_channels_last,
    ).work(turn, data.itemsize)


def _length(numbers: int) -> float:
    """The form of a kernel by the length of its rows."""
    return float(max(1, min(numbers, LONG)))


def _softmax(call: Operation) -> Work:
    """The row is read for its sum and again for the result."""
    rows: Map = call.args[0]
    dim = next(value for value in call.args if isinstance(value, int))
    return Work(
        "softmax",
        _moved(call),
        row_bytes=rows.shape[dim] * rows.itemsize if rows.ndim else 0,
        again_bytes=_extent(rows),
        form=_length(rows.shape[dim] if rows.ndim else 1),
    )


def _softmax_backward(call: Operation) -> list[Work]:
    """Gradient times output in a kernel of its own, then the result: three maps each (ATen's SoftMax.cu).

    A gradient in another order is read across by the first kernel and by a copy.
    """
    found = Work("softmax", 2 * _moved(call), turn="input gradient")
    if not (across := _across(call)):
        return [found]
    return [replace(found, across_bytes=across), Work("copy", 2 * _extent(call.args[0]), across_bytes=across)]


def _across(call: Operation) -> int:
    """Bytes beside its own that a pointwise kernel reads of arguments whose neighbours are no neighbours in the output.

    Each number then moves a sector, or as much of one as lies between two numbers.
    """
    out = call.out[0]
    fastest = min((i for i, size in enumerate(out.shape) if size > 1), key=lambda i: out.strides[i], default=0)
    return sum(
        (min(SECTOR, each.strides[fastest] * each.itemsize) - each.itemsize) * each.numel()
        for each in {(each.storage, each.offset, each.strides): each for each in call.given}.values()
        if each.shape == out.shape and each.strides and each.strides[fastest] > 1
    )


def _batch_norm(call: Operation) -> Work:
    """In training a channel is read for its sums and again for the result, by a block for each channel."""
    backward = "backward" in call.operator
    training = call.args[7] if backward else call.args[5]
    if not training:
        return Work("elementwise", _moved(call))
    again = sum(_extent(tensor) for tensor in call.args[: 2 if backward else 1])
    channels = int(call.args[0].shape[1])
    return Work("batch norm", _moved(call) + again, blocks=channels, turn="input gradient" if backward else "forward")


def _layer_norm(call: Operation) -> Work:
    """A block for each row, which reads it for its sums and again for the result."""
    data, rows = call.args[0], max(1, call.out[1].numel())
    moved = (2 * _extent(data) + _extent(call.out[0])) // rows
    return Work("norm", _moved(call), serial_s=moved / BLOCK_RATE)


def _group_norm(call: Operation) -> list[Work]:
    """The sums of each group of channels by a block, then a kernel that reads the same and writes the result.

    The backward pass reads the gradient and the input, and sums each channel.
    """
    backward = call.operator.endswith("_backward")
    read = sum(_extent(tensor) for tensor in call.args[: 2 if backward else 1])
    blocks = math.prod(call.args[1].shape[:2]) if backward else call.out[1].numel()
    sums = Work("row reduction", read, serial_s=read // max(1, blocks) / BLOCK_RATE)
    return [sums, Work("elementwise", read + _extent(call.out[0]))]


def _pooling(call: Operation) -> Work:
    """Each output reads its window; adaptive windows cover the map once."""
    backward = call.operator.endswith("_backward")
    data, out = (call.args[1], call.args[0]) if backward else (call.args[0], call.out[0])
    if "adaptive" in call.operator:
        reads = max(data.numel(), out.numel())
    else:
        window = call.args[2 if backward else 1]
        taps = math.prod(window) if len(window) > 1 else window[0] ** (3 if "3d" in call.operator else 2)
        reads = taps * out.numel()
    form = (reads + WINDOW_READS * out.numel()) / (data.numel() + out.numel())
    return Work("pooling", _moved(call), flops=2.0 * reads, form=form)


def _upsampling(call: Operation) -> Work:
    """Linear and cubic upsampling of contiguous maps, or its gradient, whose sums wait for each other in a warp."""
    name, given = call.operator, call.args[0]
    if not name.endswith("_backward"):
        return Work("elementwise", _moved(call), serial_s=math.prod(given.shape[:2]) * THREAD_S)
    added = _UPSAMPLED_FROM[name.removesuffix("_backward")] * given.numel()
    alike = min(WARP, given.shape[-1] / call.out[0].shape[-1])
    return Work("irregular", _moved(call), serial_s=added * alike * ADD_S)


def _fourier(call: Operation) -> Work:
    """5 n log2(n) operations for a transform of n points, and a pass over the map for each dimension."""
    data, dims = call.args[0], call.args[1]
    larger = max(call.given[0].numel(), call.out[0].numel())
    points = math.prod(data.shape[dim] for dim in dims)
    return Work("FFT", _moved(call) * len(dims), flops=5.0 * larger * math.log2(max(2, points)))


def _solver(call: Operation) -> Work:
    """About 2 n^3 operations in n steps for each matrix [n, n]; the matrices of a batch at the same time."""
    matrix = max(call.given, key=lambda each: each.ndim)
    size = int(matrix.shape[-1])
    return Work("solver", _moved(call), flops=2.0 * matrix.numel() * size, steps=size, single=matrix.ndim == 2)
