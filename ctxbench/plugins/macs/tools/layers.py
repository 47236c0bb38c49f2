"""Operations that counters book for a call of a layer: the words of `counters.toml`."""

from math import prod
from typing import Any

from torch import nn

from ctxbench.plugins.macs.tools.calls import LayerCall, LayerRule, first


def nothing(call: LayerCall) -> int:
    """A layer that is known to be free."""
    return 0


def output(call: LayerCall) -> int:
    """One operation for each element of the output."""
    return first(call.output).numel()


def input(call: LayerCall) -> int:
    """One operation for each element of the input."""
    return call.input.numel()


def weights_at_output(call: LayerCall) -> int:
    """One weight [_, channels / groups, *kernel] for each element of the output; no bias."""
    layer: Any = call.layer
    return int(call.output.numel() * (layer.in_channels // layer.groups) * prod(layer.kernel_size))


def weights_at_input(call: LayerCall) -> int:
    """One weight [_, channels / groups, *kernel] for each element of the input of a transposed convolution."""
    layer: Any = call.layer
    return int(call.input.numel() * (layer.out_channels // layer.groups) * prod(layer.kernel_size))


def filters_at_output(call: LayerCall) -> int:
    """All weights once for each position of the output, and the biases."""
    return _filters(call, call.output)


def filters_at_input(call: LayerCall) -> int:
    """All weights once for each position of the input, and the biases."""
    return _filters(call, call.input)


def _filters(call: LayerCall, at: Any) -> int:
    biases = call.output.numel() if call.layer.bias is not None else 0
    return int(call.layer.weight.numel() * at.numel() // at.shape[1] + biases)


def linear(call: LayerCall) -> int:
    """Multiply-accumulates, no bias."""
    return int(call.output.numel() * call.layer.in_features)


def linear_and_biases(call: LayerCall) -> int:
    return linear(call) + (call.layer.bias is not None) * first(call.output).numel()


def linear_and_a_bias(call: LayerCall) -> int:
    """With one addition for each bias, whatever the number of positions."""
    return linear(call) + int(call.layer.out_features) * (call.layer.bias is not None)


def bilinear(call: LayerCall) -> int:
    return int(call.output.numel() * (call.layer.in1_features + 1) * call.layer.in2_features)


def norm(plain: int, affine: int) -> LayerRule:
    """So many operations an element, without weights and with them."""

    def rule(call: LayerCall) -> int:
        has_weights = getattr(call.layer, "affine", False) or getattr(call.layer, "elementwise_affine", False)
        return call.input.numel() * (affine if has_weights else plain)

    return rule


def window(call: LayerCall) -> int:
    """The elements of a window of even size, and one division, for each element of the output."""
    windows = (given // made for given, made in zip(call.input.shape[2:], call.output.shape[2:], strict=True))
    return int((prod(windows) + 1) * call.output.numel())


def true_windows(call: LayerCall) -> int:
    """The elements of each window of adaptive pooling, which may overlap, and a division for each output element."""
    return int(prod(map(_covered, call.input.shape, call.output.shape)) + call.output.numel())


def _covered(given: int, made: int) -> int:
    """The elements along an axis in all windows, of which the j-th goes from floor(j g / m) to ceil((j + 1) g / m)."""
    return sum(-(-(j + 1) * given // made) - j * given // made for j in range(made))


def average(call: LayerCall) -> int:
    """The elements of each window, padded ones if they count in its mean, and a division for each output element."""
    layer: Any = call.layer
    axes = 3 if isinstance(layer, nn.AvgPool3d) else 1 if isinstance(layer, nn.AvgPool1d) else 2
    kernels, strides, paddings = (
        (each,) * axes if isinstance(each, int) else each for each in (layer.kernel_size, layer.stride, layer.padding)
    )
    elements = prod(call.input.shape[:-axes])
    sizes = zip(call.input.shape[-axes:], call.output.shape[-axes:], kernels, strides, paddings, strict=True)
    for size, made, kernel, stride, padding in sizes:
        low, high = (-padding, size + padding) if layer.count_include_pad else (0, size)
        starts = [each * stride - padding for each in range(made)]
        elements *= sum(max(min(start + kernel, high) - max(start, low), 0) for start in starts)
    return int(elements + call.output.numel())


def softmax(call: LayerCall) -> int:
    """An exponential, an addition and a division for each element, one addition less for each sum."""
    given, layer = call.input, call.layer
    dim = -3 if isinstance(layer, nn.Softmax2d) else layer.dim
    rows = given.numel() // given.shape[1 if dim is None else dim]
    extra = given.numel() if isinstance(layer, nn.Softmin) else rows if isinstance(layer, nn.LogSoftmax) else 0
    return given.numel() * 3 - rows + extra


def upsampling(nearest: int) -> LayerRule:
    """Operations of each output element by the mode; none of an unknown mode."""
    modes = {"nearest": nearest, "linear": 5, "bilinear": 11, "bicubic": 259}
    return lambda call: int(modes.get(str(call.layer.mode), 0) * call.output.numel())


def upsampling_of_all(call: LayerCall) -> int:
    """Operations of each output element by the mode, of volumes too; the nearest is free."""
    return upsampling(0)(call) + int(31 * call.output.numel() * (call.layer.mode == "trilinear"))


def recurrent(times: int, of_lstm: int) -> LayerRule:
    """All weights for each step, the biases, the elementwise work of a cell.

    That is, for each hidden channel and direction, one operation of an RNN, seven of a GRU and `of_lstm` of an LSTM.
    Where a product counts two `times`, a sum of k products takes k - 1 additions.
    """

    def rule(call: LayerCall) -> int:
        layer: Any = call.layer
        is_lstm, is_gru = isinstance(layer, nn.LSTM | nn.LSTMCell), isinstance(layer, nn.GRU | nn.GRUCell)
        gates, own = (4, of_lstm) if is_lstm else (3, 7) if is_gru else (1, 1)
        weights, biases = (sum(each.numel() for each in layer.parameters() if each.ndim == axes) for axes in (2, 1))
        cells = layer.hidden_size * getattr(layer, "num_layers", 1) * (1 + getattr(layer, "bidirectional", False))
        sums = 2 * gates * cells if times > 1 else 0
        return int(prod(call.input.shape[:-1]) * (times * weights + biases - sums + own * cells))

    return rule


def attention_and_biases(call: LayerCall) -> int:
    """Projections with biases, the scale of the query, both products, the softmax."""
    layer, (query, key, value) = call.layer, call.given(3)
    axis = 1 if layer.batch_first else 0
    affinity = query.numel() * key.shape[axis]  # multiply-accumulates of all heads
    biases = layer.in_proj_bias is not None
    projected = 2 * query.numel() + key.numel() + value.numel()
    softmax = affinity // layer.head_dim
    return int(projected * (layer.embed_dim + biases) + query.numel() + 2 * affinity + softmax)


def attention(call: LayerCall) -> int:
    """Projections without biases, both products, three operations for each element of the softmax but one a row."""
    layer: Any = call.layer
    query, key = call.given(2)
    own, others = (each.shape[-2 if layer.batch_first or each.dim() == 2 else 0] for each in (query, key))
    batch = 1 if query.dim() == 2 else query.shape[0 if layer.batch_first else 1]
    seen = others + (layer.bias_k is not None) + layer.add_zero_attn
    projected = layer.embed_dim * (2 * own * layer.embed_dim + others * (layer.kdim + layer.vdim))
    softmax = layer.num_heads * own * (3 * seen - 1)
    return int(batch * (projected + 2 * own * seen * layer.embed_dim + softmax))


# torchinfo counts parameters that have one of these in their names.
_NAMES = ("weight", "bias")


def parameters(call: LayerCall) -> int:
    """The sizes of its weight and bias, times the batch, and the positions of a convolution.

    Those of other names, as of recurrent layers, times the first two sizes of its output.
    """
    shape = first(call.output).shape
    positions = prod(shape[2:]) if "Conv" in type(call.layer).__name__ else 1
    of_name = dict.fromkeys(_NAMES, shape[0] * positions)
    named = [each for each in call.layer.named_parameters() if any(name in each[0] for name in _NAMES)]
    return sum(each.numel() * of_name.get(name, prod(shape[:2])) for name, each in named)
