"""torchinfo's `total_mult_adds`: parameters of layers, those of a convolution once for each position of its output."""

from math import prod

from ctxbench.plugins.macs.tools.calls import Calls, LayerCall, OperatorCall, Tool

# Parameters of other names are not counted.
NAMES = ("weight", "bias")


def _is_leaf(call: LayerCall) -> bool:
    return not [*call.layer.children()]


def _of_layer(call: LayerCall) -> int:
    """The sizes of its weight and bias, times the batch, and the positions of a convolution."""
    output = call.output[0] if isinstance(call.output, tuple | list) else call.output
    params = sum(each.numel() for name, each in call.layer.named_parameters() if name in NAMES)
    positions = prod(output.shape[2:]) if "Conv" in type(call.layer).__name__ else 1
    return int(params * output.shape[0] * positions)


def _count(calls: Calls) -> int:
    return sum(_of_layer(each) for each in calls.layers if _is_leaf(each))


def _sees(call: OperatorCall) -> bool:
    return (
        bool(call.layers)
        and not [*call.layers[-1].children()]
        and any(name in NAMES for name, _ in call.layers[-1].named_parameters())
    )


TOOL = Tool(
    "torchinfo",
    "torchinfo 1.8.0",
    "mult-adds",
    "of each layer without sublayers its weight and bias times the batch, of a convolution also times its positions",
    _count,
    _sees,
)
