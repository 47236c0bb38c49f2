"""thop's `profile`: layers of these types, by hooks; what is written as a function or an operator is not seen."""

from collections.abc import Callable
from math import prod

from torch import Tensor, nn

from ctxbench.plugins.macs.tools.calls import LayerCall, LayerRule, Tool, by_layers


def _convolution(call: LayerCall) -> int:
    """One weight [_, channels / groups, *kernel] for each output element; no bias."""
    layer = call.layer
    assert isinstance(layer, nn.modules.conv._ConvNd)
    return int(call.output.numel() * (layer.in_channels // layer.groups) * prod(layer.kernel_size))


def _linear(call: LayerCall) -> int:
    assert isinstance(call.layer, nn.Linear)
    return int(call.output.numel() * call.layer.in_features)


def _norm(call: LayerCall) -> int:
    """Two operations an element, four with weights."""
    affine = getattr(call.layer, "affine", False) or getattr(call.layer, "elementwise_affine", False)
    return _input(call).numel() * (4 if affine else 2)


def _input(call: LayerCall) -> Tensor:
    found: Tensor = call.inputs[0]
    return found


def _outputs(times: int) -> LayerRule:
    return lambda call: int(times * call.output.numel())


def _adaptive(call: LayerCall) -> int:
    """The elements of a window, and one division, for each output element."""
    windows = (given // made for given, made in zip(_input(call).shape[2:], call.output.shape[2:], strict=True))
    return int((prod(windows) + 1) * call.output.numel())


def _softmax(call: LayerCall) -> int:
    """An exponential, an addition and a division for each element, one addition less for each sum."""
    assert isinstance(call.layer, nn.Softmax)
    given, dim = _input(call), call.layer.dim
    return given.numel() * 3 - given.numel() // given.shape[1 if dim is None else dim]


def _upsample(call: LayerCall) -> int:
    """Operations of each output element by the mode; none of another mode."""
    modes = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}
    return int(modes.get(getattr(call.layer, "mode", ""), 0) * call.output.numel())


def _each(rule: Callable[[LayerCall], int], *types: type) -> dict[type, LayerRule]:
    return dict.fromkeys(types, rule)


RULES: dict[type, LayerRule] = {
    **_each(_convolution, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    **_each(_linear, nn.Linear),
    **_each(_norm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.SyncBatchNorm),
    **_each(_norm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    **_each(_outputs(1), nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.PReLU),
    **_each(_adaptive, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    **_each(_softmax, nn.Softmax),
    **_each(_upsample, nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d),
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
