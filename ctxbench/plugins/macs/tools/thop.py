"""thop's `profile`: layers of these types, by hooks; what is written as a function or an operator is not seen."""

from dataclasses import replace
from math import prod

from torch import nn

from ctxbench.plugins.macs.tools.calls import Calls, LayerCall, LayerRule, Tool, by_layers, layers
from ctxbench.plugins.macs.tools.functions import recurrent
from ctxbench.plugins.macs.watch import UncountableError


def _convolution(call: LayerCall) -> int:
    """One weight [_, channels / groups, *kernel] for each output element; no bias."""
    return int(call.output.numel() * (call.layer.in_channels // call.layer.groups) * prod(call.layer.kernel_size))


def _linear(call: LayerCall) -> int:
    return int(call.output.numel() * call.layer.in_features)


def _norm(call: LayerCall) -> int:
    """Two operations an element, four with weights."""
    affine = getattr(call.layer, "affine", False) or getattr(call.layer, "elementwise_affine", False)
    return call.input.numel() * (4 if affine else 2)


def _output(call: LayerCall) -> int:
    return int(call.output.numel())


def _adaptive(call: LayerCall) -> int:
    """The elements of a window, and one division, for each output element."""
    windows = (given // made for given, made in zip(call.input.shape[2:], call.output.shape[2:], strict=True))
    return int((prod(windows) + 1) * call.output.numel())


def _softmax(call: LayerCall) -> int:
    """An exponential, an addition and a division for each element, one addition less for each sum."""
    given, dim = call.input, call.layer.dim
    return given.numel() * 3 - given.numel() // given.shape[1 if dim is None else dim]


def _upsample(call: LayerCall) -> int:
    """Operations of each output element by the mode; none of another mode."""
    modes = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}
    return int(modes.get(call.layer.mode, 0) * call.output.numel())


RULES: dict[type, LayerRule] = {
    **dict.fromkeys(layers("Conv", "ConvTranspose"), _convolution),
    nn.Linear: _linear,
    **dict.fromkeys((*layers("BatchNorm", "InstanceNorm"), nn.LayerNorm, nn.SyncBatchNorm), _norm),
    **dict.fromkeys((*layers("AvgPool"), nn.PReLU), _output),
    **dict.fromkeys(layers("AdaptiveAvgPool"), _adaptive),
    nn.Softmax: _softmax,
    **dict.fromkeys((nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d), _upsample),
    **recurrent(1, of_lstm=8),
}
_count, _sees = by_layers(RULES)

TOOL = Tool(
    "thop",
    "thop 0.1.1.post2209072238",
    "MACs",
    "layers of some types: convolutions and linear layers without biases, norms four operations an element",
    _count,
    _sees,
)

# Of the input that ultralytics gives it.
SIDE = 32


def _at_32(calls: Calls) -> int:
    _, channels, height, width = calls.shape
    return 2 * _count(calls.at((1, channels, SIDE, SIDE))) * height * width // SIDE**2


def printed_of_image(calls: Calls, side: int) -> int:
    """FLOPs that ultralytics adds for a block that stands in a network, whose image has this side in pixels.

    The image of 32 x 32 is that of the network, so the block's map is smaller; where the block does not take it, the
    count is of the whole image.
    """
    _, channels, height, width = calls.shape
    small = (1, channels, max(1, height * SIDE // side), max(1, width * SIDE // side))
    try:
        return 2 * _count(calls.at(small)) * side**2 // SIDE**2
    except UncountableError:
        return 2 * _count(calls)


AT_32 = replace(
    TOOL,
    name="thop, as ultralytics called it",  # until 2026
    unit="FLOPs",
    about=f"twice thop's count of one image of {SIDE} x {SIDE}, times the ratio of the areas",
    count=_at_32,
)
