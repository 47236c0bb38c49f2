"""Multiply-accumulates of each aten operator under torchprofile 0.1.0's convention.

The convention is that of torchprofile's handlers (https://github.com/zhijian-liu/torchprofile, version 0.1.0),
read at the operators that a forward calls, before they decompose. In a backward pass the same rules hold for the
operators that autograd runs. Names carry no in-place underscore: `aten::mul_` is looked up as `aten::mul`.
What the convention has no rule for, and is no close kin of what it has, is in `left_out.py`.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# A rule takes an operator's positional arguments and its output, and gives multiply-accumulates.
MacsRule = Callable[[Sequence[Any], Any], int]


def _product(left: int) -> MacsRule:
    """Matrix product of arguments `left` [..., n, m] and `left + 1` [..., m, p], either of which may be a vector."""

    def rule(args: Sequence[Any], _: Any) -> int:
        first, second = args[left], args[left + 1]
        return int(first.numel() * (second.shape[-1] if second.ndim > 1 else 1))

    return rule


def _convolution(args: Sequence[Any], output: "Tensor") -> int:
    """One weight [_, channels / groups, *kernel] for each output element, or each input element if transposed."""
    transposed = args[6]
    elements = args[0] if transposed else output
    return int(elements.numel() * prod(args[1].shape[1:]))


def _convolution_backward(args: Sequence[Any], _: Any) -> int:
    """As the forward, once for each gradient that is asked for: the input's, the weight's; the bias's is a sum."""
    forward = _convolution((*args[1:3], None, *args[4:]), args[0])
    return int(forward * sum(args[10][:2]))


def _attention(args: Sequence[Any], output: Any) -> int:
    """Query [..., s, d] times key [..., t, d], and the affinity [..., s, t] times value [..., t, e]."""
    query, key = args[:2]
    context = output[0] if isinstance(output, tuple) else output
    sizes = zip_longest(reversed(query.shape[:-2]), reversed(key.shape[:-2]), fillvalue=1)
    affinity = prod(map(max, sizes)) * query.shape[-2] * key.shape[-2]  # batches and heads may broadcast
    return int(affinity * query.shape[-1] + context.numel() * key.shape[-2])


def _attention_backward(args: Sequence[Any], _: Any) -> int:
    """Five products (FlashAttention-2): the affinity again, its gradient, those of query, key and value."""
    query, key, value = args[1:4]
    return int(prod(query.shape[:-1]) * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1]))


def _fused_attention(keys: int) -> MacsRule:
    """Query [B, s, h, d] times key [B, t, h, d], and the affinity times value [B, t, h, e].

    Argument `keys` is t if it is given; of rows that are packed into one, [1, sum of s, h, d], the longest row's.
    """

    def rule(args: Sequence[Any], output: Any) -> int:
        each = args[1].shape[1] if args[keys] is None else args[keys]
        return int((args[0].numel() + output[0].numel()) * each)

    return rule


def _fused_attention_backward(args: Sequence[Any], _: Any) -> int:
    """Five products, as `_attention_backward`, with t as an argument."""
    query, _, value = args[1:4]
    return int(prod(query.shape[:-1]) * args[9] * (3 * query.shape[-1] + 2 * value.shape[-1]))


def _trilinear(args: Sequence[Any], _: Any) -> int:
    """The product of all index sizes, as of an einsum of three: sum_ij x_i W_oij y_j costs B O I J."""
    operands = []
    for operand, axes in zip(args[:3], args[3:6], strict=True):
        sizes = [*operand.shape]
        for axis in axes:
            sizes.insert(axis, 1)
        operands.append(sizes)
    return prod(map(max, zip(*operands, strict=True)))


def _distances(first: int) -> MacsRule:
    """One square for each pair of rows and channel, of arguments `first` [..., n, d] and `first + 1` [..., m, d]."""

    def rule(args: Sequence[Any], _: Any) -> int:
        one, other = args[first : first + 2]
        batch = prod(map(max, zip_longest(reversed(one.shape[:-2]), reversed(other.shape[:-2]), fillvalue=1)))
        return int(batch * one.shape[-2] * other.shape[-2] * one.shape[-1])

    return rule


def _einsum(args: Sequence[Any], _: Any) -> int:
    """The product of all index sizes, whatever the contraction order; an ellipsis stands for its broadcast axes."""
    equation, operands = args[:2]
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        before, _, after = term.partition("...")
        hidden = operand.ndim - len(before) - len(after)
        indices = [*before, *(f"...{axis}" for axis in range(-hidden, 0)), *after]
        for index, size in zip(indices, operand.shape, strict=True):
            if sizes.get(index, 1) == 1:  # an axis of size 1 broadcasts
                sizes[index] = size
    return prod(sizes.values())


def _elements(each: int = 1) -> MacsRule:
    """A fixed cost for each output element."""
    return lambda args, output: each * output.numel()


def _gradients(each: int = 1) -> MacsRule:
    """A fixed cost for each element of the incoming gradient."""
    return lambda args, _: each * args[0].numel()


def _affine_norm(weight: int) -> MacsRule:
    """One for each element if argument `weight` is given, else none."""
    return lambda args, _: args[0].numel() if len(args) > weight and args[weight] is not None else 0


def _affine_norm_backward(weight: int) -> MacsRule:
    """As the forward, once for each gradient that is asked for: the input's, the weight's; the bias's is a sum."""
    forward = _affine_norm(weight)
    return lambda args, output: forward(args, output) * sum(args[-1][:2])


def _selective_scan(args: Sequence[Any], output: "Tensor") -> int:
    """For each state the step times its rate, the value that enters, the recurrence and what leaves; the skip."""
    return int(output.numel() * (4 * args[2].shape[-1] + 1))


def _wkv(args: Sequence[Any], output: "Tensor") -> int:
    """Numerator and denominator in two directions, and a weight's product with the value, with `first` and without."""
    return 6 * output.numel()


def _scan_backward(forward: MacsRule) -> MacsRule:
    """Twice the forward: each multiplication has two gradients."""
    return lambda args, _: 2 * forward(args[1:], args[0])


_SCANS = {"ctxbench::selective_scan": _selective_scan, "ctxbench::wkv": _wkv}


def _taps(mode: int, grid: "Tensor") -> int:
    """Products of a grid sampler for each output element: bilinear (trilinear in three axes), nearest, bicubic."""
    return (2 ** grid.shape[-1], 0, 16)[mode]


def _grid_sampler(args: Sequence[Any], output: "Tensor") -> int:
    return output.numel() * _taps(args[2], args[1])


def _grid_sampler_backward(args: Sequence[Any], _: Any) -> int:
    """As the forward, once for each gradient that is asked for: the input's, the grid's."""
    return int(args[0].numel() * _taps(args[3], args[2]) * sum(args[-1]))


_ATTENTION = (
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
)


# What stands for `flex_attention` and its gradient, which are no operators.
FLEX = "flex_attention"


def _alike(rule: MacsRule, names: str) -> dict[str, MacsRule]:
    """The rule of operators of PyTorch, by their names."""
    return {f"aten::{name}": rule for name in names.split()}


# Matrix products and convolutions.
PRODUCTS: dict[str, MacsRule] = {
    **_alike(_product(0), "dot vdot mv mm bmm _int_mm"),
    **_alike(_product(1), "addmv addmm _addmm_activation addbmm baddbmm"),
    **_alike(_convolution, "convolution _convolution"),
    "aten::convolution_backward": _convolution_backward,
    **dict.fromkeys(_ATTENTION, _attention),
    **{f"{name}_backward": _attention_backward for name in _ATTENTION},
    FLEX: _attention,
    f"{FLEX}_backward": _attention_backward,
    "aten::_efficient_attention_forward": _fused_attention(7),
    "aten::_flash_attention_forward": _fused_attention(6),
    **_alike(_fused_attention_backward, "_efficient_attention_backward _flash_attention_backward"),
    "aten::_trilinear": _trilinear,
}

# All other operators that cost something. Matrix products inside them do not count a second time. What autograd runs
# stands behind what a forward calls: parts of it, and gradients.
OTHERS: dict[str, MacsRule] = {
    **_SCANS,
    **{f"{name}_backward": _scan_backward(rule) for name, rule in _SCANS.items()},
    "aten::einsum": _einsum,
    **_alike(_elements(), "mul addcmul cumprod glu _prelu_kernel mean leaky_relu avg_pool1d avg_pool2d avg_pool3d"),
    **_alike(_elements(), "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    **_alike(_elements(), "_adaptive_avg_pool2d _adaptive_avg_pool3d ger addr"),
    **_alike(_gradients(), "leaky_relu_backward avg_pool2d_backward avg_pool3d_backward"),
    **_alike(_gradients(), "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward"),
    **_alike(_gradients(2), "glu_backward _prelu_kernel_backward"),
    **_alike(lambda args, _: args[0].numel(), "prod _weight_norm_interface"),
    "aten::_weight_norm_interface_backward": lambda args, _: 2 * args[0].numel(),
    **_alike(_distances(0), "_euclidean_dist _cdist_forward"),
    "aten::_cdist_backward": _distances(1),
    **{
        f"aten::upsample_{name}{turn}": rule(times)
        for name, times in {"linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16}.items()
        for turn, rule in {"": _elements, "_backward": _gradients}.items()
    },
    **_alike(_grid_sampler, "grid_sampler grid_sampler_2d grid_sampler_3d"),
    **_alike(_grid_sampler_backward, "grid_sampler_2d_backward grid_sampler_3d_backward"),
    **_alike(_affine_norm(1), "batch_norm instance_norm native_batch_norm _native_batch_norm_legit native_group_norm"),
    **_alike(_affine_norm(2), "layer_norm group_norm native_layer_norm"),
    "aten::native_batch_norm_backward": _affine_norm_backward(2),
    "aten::native_layer_norm_backward": _affine_norm_backward(5),
    "aten::native_group_norm_backward": _affine_norm_backward(4),
}

# Composites of which only the matrix products inside count: a recurrent layer's gates are free.
RECURRENT = frozenset({"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"})

# fmt: off
# Arithmetic that torchprofile lists as free, with its close kin: comparisons, sums and divisions under another name.
_ARITHMETIC = (
    "abs", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "add", "all", "alpha_dropout",
    "amax", "amin", "any", "argmax", "argmin", "bitwise_and", "bitwise_not", "bitwise_or", "ceil", "clamp",
    "clamp_max", "clamp_min", "cos", "div", "dropout", "eq", "feature_dropout", "floor",
    "floor_divide", "ge", "gelu", "gt", "hardtanh", "isinf", "isnan", "le", "log2", "log_softmax",
    "logical_and", "logical_not", "logical_or", "lt", "max", "max_pool1d", "max_pool1d_with_indices",
    "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "maximum", "min",
    "minimum", "ne", "neg", "pow", "reciprocal", "relu", "round", "rsqrt", "rsub", "sigmoid", "sign", "silu",
    "sin", "softmax", "_softmax", "_safe_softmax", "_log_softmax", "softshrink", "sort", "sqrt", "sub", "sum", "tanh",
    "threshold", "topk", "upsample_nearest2d",
)

# Operators that move, fill or inspect memory and are no views.
_MEMORY = (
    "arange", "cat", "clone", "complex", "constant_pad_nd", "copy", "detach", "embedding", "empty", "empty_like",
    "empty_strided", "eye", "fill", "flip", "full", "full_like", "gather", "im2col", "index", "index_put",
    "index_select", "item", "_linalg_check_errors", "_local_scalar_dense", "linspace", "masked_fill", "max_unpool2d",
    "max_unpool3d", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones", "ones_like",
    "pixel_shuffle", "pixel_unshuffle", "promote_types", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "repeat", "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "scalar_tensor", "scatter",
    "select_scatter", "slice_scatter", "stack", "_to_copy", "tril", "triu", "_unsafe_view", "where", "zero",
    "zeros", "zeros_like",
)

# Gradients that are called after another operator; those of `NAME` above are free as `NAME_backward`.
_BACKWARD = (
    "col2im", "diagonal_backward", "embedding_dense_backward", "index_add", "_log_softmax_backward_data",
    "scatter_add", "select_backward", "slice_backward", "_softmax_backward_data", "unfold_backward",
)

# Close kin of the above that PyTorch does not tag as such: activations, losses, sums along an axis, what moves memory.
_KIN = (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "bucketize", "copysign", "cummax", "cummin", "cumsum",
    "elu", "hardshrink", "hardsigmoid", "hardswish", "heaviside", "histc", "huber_loss", "kthvalue", "logcumsumexp",
    "log_sigmoid", "log_sigmoid_forward", "logit", "_masked_softmax", "median", "mish", "mode", "mse_loss",
    "nll_loss2d", "nll_loss2d_forward", "nll_loss", "nll_loss_forward", "renorm", "rrelu_with_noise", "searchsorted",
    "smooth_l1_loss", "softplus", "xlogy", "blackman_window", "block_diag", "channel_shuffle", "diag_embed",
    "diagonal_scatter", "empty_permuted", "fft_fftfreq", "fft_rfftfreq", "fractional_max_pool2d", "hamming_window",
    "hann_window", "index_copy", "index_fill", "index_reduce", "isin", "kaiser_window", "lift", "lift_fresh",
    "logspace", "lu_unpack", "masked_scatter", "masked_select", "nonzero", "put", "range", "repeat_interleave",
    "rot90", "scatter_reduce", "take", "trace", "tril_indices", "triu_indices", "_unique2", "unique_consecutive",
    "unique_dim", "_unsafe_index", "_unsafe_index_put", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate",
    "unsafe_split", "unsafe_split_with_sizes",
    *(f"{name}{axes}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)),
)
# fmt: on
_FREE_TAGS = frozenset(("pointwise", "reduction", "nondeterministic_seeded"))

_OWN = (*_ARITHMETIC, *_MEMORY, *_KIN)
_NAMES = (*_OWN, *(f"{name}_backward" for name in _OWN), *_BACKWARD)
FREE = frozenset(f"aten::{name}" for name in _NAMES)
# Operators of whose parts no rule but that of products applies.
WHOLE = RECURRENT.union(FREE, OTHERS)


# Composite operators that count as a whole.
COMPOSITES = WHOLE | PRODUCTS.keys()


def is_free(name: str, tags: Collection[str]) -> bool:
    """True for the kin of FREE: PyTorch's operators on each element alone, its reductions and its random numbers."""
    return name.startswith("aten::") and not _FREE_TAGS.isdisjoint(tags)
