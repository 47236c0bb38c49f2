"""Operations that counters book for an operator of a traced pass: words of `counters.toml`."""

from math import prod
from string import ascii_lowercase

from torch import Tensor

from ctxbench.plugins.macs.rules import OTHERS, PRODUCTS
from ctxbench.plugins.macs.tools.calls import CallWithin, Rule, first
from ctxbench.plugins.macs.tools.functions import einsum_operations


def own(call: CallWithin) -> int:
    """Multiply-accumulates as ctxbench counts them."""
    return {**OTHERS, **PRODUCTS}[call.name](call.args, call.output)


def output(times: int) -> Rule:
    """So many operations for each element of the output."""
    return lambda call: times * first(call.output).numel()


def input(call: CallWithin) -> int:
    """One operation for each element of the input."""
    return int(call.args[0].numel())


def macs(times: int) -> Rule:
    """So many operations for each multiply-accumulate."""
    return lambda call: times * call.macs


def macs_and_biases(call: CallWithin) -> int:
    """Multiply-accumulates, and one operation for each bias that is added."""
    has_bias = call.name == "aten::addmm" or (call.name == "aten::convolution" and call.args[2] is not None)
    return call.macs + (first(call.output).numel() if has_bias else 0)


def product(left: int) -> Rule:
    """Elements of argument `left` by the last size of the next; a vector counts once."""

    def rule(call: CallWithin) -> int:
        one, other = call.args[left], call.args[left + 1]
        return int(one.numel() * (other.shape[-1] if other.ndim > 1 else 1))

    return rule


def product_of_output(call: CallWithin) -> int:
    return int(first(call.output).numel() * call.args[0].shape[-1])


def linear(call: CallWithin) -> int:
    return int(call.args[0].numel() * call.args[1].shape[0])


def filters(call: CallWithin) -> int:
    """The weights once for each position of the output, or of the input if transposed; 0 if padded by a word."""
    given, weight = call.args[:2]
    if _is_padded_by_word(call):
        return 0
    transposed = "transpose" in call.name or (call.name.endswith("convolution") and bool(call.args[6]))
    at = given if transposed else first(call.output)
    return int(given.shape[0] * prod(weight.shape) * prod(at.shape[2:]))


def weights_at_output(call: CallWithin) -> int:
    """One weight [_, channels / groups, *kernel] for each output element, all channels if transposed.

    None where the padding is a word.
    """
    weight = call.args[1].shape
    channels = weight[0] if "transpose" in call.name else weight[1]
    return 0 if _is_padded_by_word(call) else int(first(call.output).numel() * channels * prod(weight[2:]))


def _is_padded_by_word(call: CallWithin) -> bool:
    """Return whether a convolution's padding is "same" or "valid", which makes it another operator of a trace."""
    return len(call.args) > 4 and isinstance(call.args[4], str)


def norm(weight: int, plain: int, affine: int) -> Rule:
    """So many operations an element, without and with the weights that are argument `weight`."""

    def rule(call: CallWithin) -> int:
        has_weights = len(call.args) > weight and isinstance(call.args[weight], Tensor)
        return int(call.args[0].numel() * (affine if has_weights else plain))

    return rule


def lstm(call: CallWithin) -> int:
    """All weights once for each step."""
    given, weights = call.args[0], call.args[2]
    return int(given.shape[:-1].numel() * sum(each.numel() for each in weights if each.ndim == 2))


def einsum_of_indices(call: CallWithin) -> int:
    """The product of all index sizes; none with an ellipsis."""
    return 0 if "..." in call.args[0] else OTHERS["aten::einsum"](call.args, call.output)


# Products whose count is exact.
_EXACT = ("abc,abd->acd", "abc,adc->adb")


def einsum_of_path(call: CallWithin) -> int:
    """Half of the operations along numpy's path; the product of all index sizes for two forms of equation."""
    equation = call.args[0].replace(" ", "")
    letters = dict(zip(dict.fromkeys(filter(str.isalpha, equation)), ascii_lowercase, strict=False))
    if "".join(letters.get(sign, sign) for sign in equation) in _EXACT:
        return OTHERS["aten::einsum"](call.args, call.output)
    return einsum_operations(equation, [each.shape for each in call.args[1]]) // 2
