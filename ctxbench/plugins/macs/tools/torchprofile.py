"""torchprofile's `profile_macs`: operators of a traced pass, by the rules that ctxbench's own counter follows."""

from math import prod

from ctxbench.plugins.macs import rules
from ctxbench.plugins.macs.tools import fvcore
from ctxbench.plugins.macs.tools.calls import CallWithin, Rule, Tool, by_operators, first

# Products that it has no rule for.
_UNKNOWN = ("aten::mm", "aten::mv", "aten::dot", "aten::vdot")


def _as_counted(rule: rules.MacsRule) -> Rule:
    return lambda call: rule(call.args, call.output)


def _convolution(call: CallWithin) -> int:
    """One weight [_, channels / groups, *kernel] for each output element, all channels if transposed.

    None where the padding is a word.
    """
    weight = call.args[1].shape
    channels = weight[0] if "transpose" in call.name else weight[1]
    return 0 if fvcore.is_padded_by_word(call) else int(first(call.output).numel() * channels * prod(weight[2:]))


def _matmul(call: CallWithin) -> int:
    return int(first(call.output).numel() * call.args[0].shape[-1])


def _lstm(call: CallWithin) -> int:
    """All weights once for each step."""
    given, weights = call.args[0], call.args[2]
    return int(given.shape[:-1].numel() * sum(each.numel() for each in weights if each.ndim == 2))


def _einsum(call: CallWithin) -> int:
    """The product of all index sizes; none with an ellipsis."""
    return 0 if "..." in call.args[0] else rules.OTHERS["aten::einsum"](call.args, call.output)


_OWN = {**rules.PRODUCTS, **rules.OTHERS}
RULES: dict[str, Rule] = {
    **{name: _as_counted(_OWN[name]) for name in _OWN if name.startswith("aten::") and name not in _UNKNOWN},
    **{name: _convolution for name in fvcore.RULES if "conv" in name},
    "aten::linear": fvcore.RULES["aten::linear"],
    "aten::matmul": _matmul,
    "aten::lstm": _lstm,
    "aten::einsum": _einsum,
}
_count, _sees = by_operators(RULES)

TOOL = Tool(
    "torchprofile",
    "torchprofile 0.1.0",
    "MACs",
    "products, convolutions and multiplications once, norms with weights, means and pooling one operation an element",
    _count,
    _sees,
)
