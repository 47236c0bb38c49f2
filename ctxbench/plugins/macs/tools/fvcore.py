"""fvcore's `FlopCountAnalysis`: operators of a traced pass, which it calls flops; a product counts once."""

from dataclasses import replace
from math import prod
from string import ascii_lowercase

from torch import Tensor

from ctxbench.plugins.macs.rules import OTHERS
from ctxbench.plugins.macs.tools.calls import CallWithin, Rule, Tool, by_operators, elements, first, of_one_image
from ctxbench.plugins.macs.tools.functions import einsum_operations


def _product(left: int) -> Rule:
    def rule(call: CallWithin) -> int:
        one, other = call.args[left], call.args[left + 1]
        return int(one.numel() * (other.shape[-1] if other.ndim > 1 else 1))

    return rule


def _linear(call: CallWithin) -> int:
    return int(call.args[0].numel() * call.args[1].shape[0])


def _convolution(call: CallWithin) -> int:
    """The weights once for each position of the output, or of the input if transposed; 0 if padded by a word."""
    given, weight = call.args[:2]
    if is_padded_by_word(call):
        return 0
    made = first(call.output)
    transposed = "transpose" in call.name or (call.name.endswith("convolution") and bool(call.args[6]))
    return int(given.shape[0] * prod(weight.shape) * prod((given if transposed else made).shape[2:]))


def is_padded_by_word(call: CallWithin) -> bool:
    """Return whether a convolution's padding is "same" or "valid", which makes it another operator of a trace."""
    return len(call.args) > 4 and isinstance(call.args[4], str)


def _norm(weight: int) -> Rule:
    """Four operations an element, five with weights."""

    def rule(call: CallWithin) -> int:
        affine = len(call.args) > weight and isinstance(call.args[weight], Tensor)
        return int(call.args[0].numel() * (5 if affine else 4))

    return rule


def _batch_norm(call: CallWithin) -> int:
    """One operation an element in inference, two with weights."""
    return int(call.args[0].numel() * (1 + isinstance(call.args[1], Tensor)))


# Products whose count is exact.
_EXACT = ("abc,abd->acd", "abc,adc->adb")


def _einsum(call: CallWithin) -> int:
    """Half of the operations along numpy's path; the product of all index sizes for two forms of equation."""
    equation = call.args[0].replace(" ", "")
    letters = dict(zip(dict.fromkeys(filter(str.isalpha, equation)), ascii_lowercase, strict=False))
    if "".join(letters.get(sign, sign) for sign in equation) in _EXACT:
        return OTHERS["aten::einsum"](call.args, call.output)
    return einsum_operations(equation, [each.shape for each in call.args[1]]) // 2


RULES: dict[str, Rule] = {
    **{f"aten::{name}": _convolution for name in ("conv1d", "conv2d", "conv3d", "convolution", "_convolution")},
    **{f"aten::conv_transpose{axes}d": _convolution for axes in (1, 2, 3)},
    "aten::linear": _linear,
    "aten::matmul": _product(0),
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
    "aten::einsum": _einsum,
    "aten::batch_norm": _batch_norm,
    "aten::layer_norm": _norm(2),
    "aten::group_norm": _norm(2),
    "aten::instance_norm": _norm(1),
    "aten::upsample_nearest2d": elements(),
    "aten::upsample_bilinear2d": elements(4),
    "aten::grid_sampler": elements(4),
    "aten::adaptive_avg_pool2d": elements(of_input=True),
}
_count, _sees = by_operators(RULES)

TOOL = Tool(
    "fvcore",
    "fvcore 0.1.5.post20221221",
    "flops",
    "products and convolutions once, layer and group norm five operations an element, batch norm two, pooling one",
    _count,
    _sees,
)
# `get_model_complexity_info`
MMENGINE = replace(
    TOOL,
    name="mmengine",
    package="mmengine 0.10.7",
    about="as fvcore, of one image, whatever the batch",
    count=of_one_image(_count),
)
