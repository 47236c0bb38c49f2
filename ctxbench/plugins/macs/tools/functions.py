"""Operations that counters book for a function of PyTorch, in whose place they put their own; see `counters.toml`."""

import re
from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from ctxbench.plugins.macs.rules import PRODUCTS
from ctxbench.plugins.macs.tools.calls import FunctionCall, FunctionRule, first
from ctxbench.plugins.macs.watch import UncountableError


def outputs(call: FunctionCall) -> int:
    """One operation for each element of the output."""
    return first(call.output).numel()


def inputs(call: FunctionCall) -> int:
    """One operation for each element of the input."""
    return call.input.numel()


def linear(times: int) -> FunctionRule:
    """So many operations a multiply-accumulate with a weight [channels of the output, channels]."""
    return lambda call: int(times * call.input.numel() * call.argument(1, "weight").shape[0])


def product(times: int) -> FunctionRule:
    """So many operations for each element of the first argument, by the last size of the second, a vector's too."""
    return lambda call: int(times * call.args[0].numel() * call.args[1].shape[-1])


def product_of_output(call: FunctionCall) -> int:
    """A multiply-accumulate for each element of the output and of the last axis of the first argument."""
    return int(first(call.output).numel() * call.argument(0, "input").shape[-1])


def product_and_sum(times: int) -> FunctionRule:
    """So many operations for each multiply-accumulate of the second and third argument, one for each of the first."""
    return lambda call: int(times * call.args[1].numel() * call.args[2].shape[-1] + first(call.output).numel())


def attention(times: int) -> FunctionRule:
    """So many operations for each multiply-accumulate of both products."""
    own = PRODUCTS["aten::scaled_dot_product_attention"]

    def rule(call: FunctionCall) -> int:
        maps = [call.argument(place, name) for place, name in enumerate(("query", "key", "value"))]
        return times * own(maps, call.output)

    return rule


def heads(call: FunctionCall) -> int:
    """Projections, both products and the softmax of `multi_head_attention_forward` [positions, batch, channels]."""
    query, key, value, channels, of_heads, *_ = call.args
    own, batch = query.shape[0], query.shape[1] if query.dim() == 3 else 1
    others = key.shape[0]
    projected = channels * (2 * own * channels + others * (key.shape[-1] + value.shape[-1]))
    return int(batch * (projected + 2 * own * others * channels + of_heads * own * (3 * others - 1)))


def einsum(call: FunctionCall) -> int:
    return einsum_operations(call.args[0], [each.shape for each in call.args[1:]])


def einsum_operations(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Operations along the best path that numpy finds, from a text of four digits."""
    operands = [np.broadcast_to(np.float32(0), tuple(each)) for each in shapes]
    found = re.search(r"Optimized FLOP count: *(\S+)", np.einsum_path(equation, *operands, optimize="optimal")[1])
    assert found is not None
    return int(float(found[1]))


def einsum_of_two(call: FunctionCall) -> int:
    """Multiply-accumulates of an equation of two operands; none of another number.

    An index that one operand alone has, and the result has not, is summed up before.
    """
    operands = call.args[1] if isinstance(call.args[1], list | tuple) else call.args[1:]
    if len(operands) != 2:
        return 0
    left, arrow, right = call.args[0].replace(" ", "").partition("->")
    if not arrow:
        right = "..." + "".join(each for each in left if left.count(each) == 1)
    one, other = (_indices(each, tensor) for each, tensor in zip(left.split(","), operands, strict=True))
    kept = {*right} | ({*range(1, 10)} if "..." in right else set())
    return prod(
        one.get(each, other.get(each, 1)) for each in {*one, *other} if each in {*one} & {*other} or each in kept
    )


def _indices(letters: str, tensor: Any) -> dict[str | int, int]:
    """The sizes of an operand's indices above one; those of an ellipsis by their place from the right."""
    head, _, tail = letters.partition("...")
    rest = range(tensor.dim() - len(head) - len(tail), 0, -1)
    return {each: size for each, size in zip([*head, *rest, *tail], tensor.shape, strict=True) if size != 1}


def convolution(call: FunctionCall) -> int:
    """Two operations a multiply-accumulate, one for each bias that is added.

    All weights count once for each image and position of the output, or of the input if transposed.
    """
    biases = _has_bias(call) * first(call.output).numel()
    return 2 * _filters(call, "transpose" in call.name) + biases


def transposed_by_groups(call: FunctionCall) -> int:
    """A transposed convolution, divided by the groups again; biases at the positions that a convolution would have."""
    weight, groups = call.argument(1, "weight"), call.argument(6, "groups") or 1
    biases = _has_bias(call) * call.input.shape[0] * weight.shape[1] * _positions(call)
    return int(2 * (_filters(call, True) // groups) + biases)


def _has_bias(call: FunctionCall) -> bool:
    return call.argument(2, "bias") is not None


def _filters(call: FunctionCall, at_input: bool) -> int:
    at = call.input if at_input else first(call.output)
    return int(call.argument(1, "weight").numel() * at.numel() // at.shape[1])


def _positions(call: FunctionCall) -> int:
    """Positions of the output of a convolution that is not transposed."""
    kernel = call.argument(1, "weight").shape[2:]
    named = ((3, "stride"), (4, "padding"), (7, "dilation"))
    stride, padding, dilation = (call.argument(place, name) for place, name in named)
    sizes = zip(call.input.shape[2:], kernel, stride, padding, dilation, strict=True)
    return prod((size + 2 * around - apart * (taps - 1) - 1) // step + 1 for size, taps, step, around, apart in sizes)


def resized(call: FunctionCall) -> int:
    """One operation for each element of the output; for each position alone where a size is given."""
    out = first(call.output)
    return prod(out.shape[2:]) if call.argument(1, "size") is not None else out.numel()


def resized_by_one_factor(call: FunctionCall) -> int:
    """One operation for each position where a size is given, else for each element of the input.

    UncountableError for several factors, unless they are as many as images.
    """
    factors = call.argument(2, "scale_factor")
    if isinstance(factors, list) or (isinstance(factors, tuple) and len(factors) != len(call.input)):
        raise UncountableError("it fails on a scale_factor of several numbers in interpolate")
    size = call.argument(1, "size")
    return call.input.numel() if size is None else prod(first(call.output).shape[2:])


def paired_from_the_left(call: FunctionCall) -> int:
    """The larger of both sizes of each axis, where axes are paired from the left, not as PyTorch broadcasts them."""
    shapes = [tuple(each.shape) if hasattr(each, "shape") else () for each in call.args[:2]]
    return prod(max(pair) for pair in zip_longest(*shapes, fillvalue=1))


def norm(weight: int, plain: int, affine: int) -> FunctionRule:
    """So many operations for each element, without and with the weights that are argument `weight`."""
    return lambda call: call.input.numel() * (plain if call.argument(weight, "weight") is None else affine)
