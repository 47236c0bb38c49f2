"""Rules for the functions of PyTorch that a counter puts its own in the place of."""

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from torch import nn

from ctxbench.plugins.macs.rules import PRODUCTS
from ctxbench.plugins.macs.tools.calls import FunctionCall, FunctionRule, LayerCall, LayerRule, first

_CELLS = ((nn.RNN, nn.RNNCell), (nn.GRU, nn.GRUCell), (nn.LSTM, nn.LSTMCell))


def linear(call: FunctionCall) -> int:
    """Multiply-accumulates with a weight [channels of the output, channels]."""
    return int(call.input.numel() * call.argument(1, "weight").shape[0])


def convolution(call: FunctionCall) -> int:
    """All weights once for each image and position of the output, or of the input if transposed."""
    at = call.input if "transpose" in call.name else first(call.output)
    return int(call.argument(1, "weight").numel() * at.numel() // at.shape[1])


def product(call: FunctionCall) -> int:
    """The elements of the first argument by the last size of the second, also of a vector."""
    return int(call.args[0].numel() * call.args[1].shape[-1])


def product_and_sum(times: int) -> FunctionRule:
    """So many operations for each multiply-accumulate of the second and third argument, one for each of the first."""
    return lambda call: int(times * call.args[1].numel() * call.args[2].shape[-1] + first(call.output).numel())


def attention(call: FunctionCall) -> int:
    """Multiply-accumulates of both products."""
    return PRODUCTS["aten::scaled_dot_product_attention"](call.args, call.output)


def einsum_operations(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Operations along the best path that numpy finds, from a text of four digits."""
    operands = [np.broadcast_to(np.float32(0), tuple(each)) for each in shapes]
    found = re.search(r"Optimized FLOP count: *(\S+)", np.einsum_path(equation, *operands, optimize="optimal")[1])
    assert found is not None
    return int(float(found[1]))


def recurrent(times: int, of_lstm: int = 10) -> dict[type, LayerRule]:
    """Rules for recurrent layers and cells: all weights for each step, the biases, the elementwise work of a cell.

    That is, for each hidden channel and direction, one operation of an RNN, seven of a GRU and `of_lstm` of an LSTM.
    Where a product counts two `times`, a sum of k products takes k - 1 additions.
    """
    kinds = zip(_CELLS, (1, 3, 4), (1, 7, of_lstm), strict=True)
    return {cell: _recurrent(times, gates, own) for cells, gates, own in kinds for cell in cells}


def _recurrent(times: int, gates: int, own: int) -> LayerRule:
    def rule(call: LayerCall) -> int:
        layer: Any = call.layer
        weights, biases = (sum(each.numel() for each in layer.parameters() if each.ndim == axes) for axes in (2, 1))
        cells = layer.hidden_size * getattr(layer, "num_layers", 1) * (1 + getattr(layer, "bidirectional", False))
        sums = 2 * gates * cells if times > 1 else 0
        return int(prod(call.input.shape[:-1]) * (times * weights + biases - sums + own * cells))

    return rule


def outputs(times: int = 1) -> FunctionRule:
    """So many operations for each element of the output."""
    return lambda call: times * first(call.output).numel()


def inputs(call: FunctionCall) -> int:
    """One operation for each element of the input."""
    return call.input.numel()


def norm(weight: int, plain: int, affine: int) -> FunctionRule:
    """So many operations for each element, without and with the weights that are argument `weight`."""
    return lambda call: call.input.numel() * (plain if call.argument(weight, "weight") is None else affine)


def each(rule: FunctionRule, names: Iterable[str], *owners: str) -> dict[str, FunctionRule]:
    """The same rule for several functions of these owners; none: of `torch.nn.functional`."""
    return {f"{owner}.{name}": rule for name in names for owner in owners or ("functional",)}
