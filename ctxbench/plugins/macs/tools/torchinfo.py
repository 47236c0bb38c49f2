"""torchinfo's `total_mult_adds`: parameters of layers, those of a convolution once for each position of its output."""

from math import prod

from torch import nn

from ctxbench.plugins.macs.tools.calls import Calls, CallWithin, LayerCall, Tool, first

# Parameters are counted that have one of these in their names.
NAMES = ("weight", "bias")


def _is_leaf(layer: nn.Module) -> bool:
    return not [*layer.children()]


def _counted(layer: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [each for each in layer.named_parameters() if any(name in each[0] for name in NAMES)]


def _of_layer(call: LayerCall) -> int:
    """The sizes of its weight and bias, times the batch, and the positions of a convolution.

    Those of other names, as of recurrent layers, times the first two sizes of its output.
    """
    shape = first(call.output).shape
    positions = prod(shape[2:]) if "Conv" in type(call.layer).__name__ else 1
    of_name = dict.fromkeys(NAMES, shape[0] * positions)
    return sum(each.numel() * of_name.get(name, prod(shape[:2])) for name, each in _counted(call.layer))


def _count(calls: Calls) -> int:
    return sum(_of_layer(each) for each in calls.layers if _is_leaf(each.layer))


def _sees(call: CallWithin) -> bool:
    return bool(call.layers and _is_leaf(call.layers[-1]) and _counted(call.layers[-1]))


TOOL = Tool(
    "torchinfo",
    "torchinfo 1.8.0",
    "mult-adds",
    "of each layer without sublayers its weight and bias times the batch, of a convolution also times its positions",
    _count,
    _sees,
)
