"""calflops' `calculate_flops`: the functions of PyTorch that a pass calls by their names, as DeepSpeed's profiler."""

from math import prod

from ctxbench.plugins.macs.tools import deepspeed
from ctxbench.plugins.macs.tools.calls import FunctionCall, FunctionRule, Tool, by_functions, first
from ctxbench.plugins.macs.tools.functions import convolution, each


def _transposed(call: FunctionCall) -> int:
    """As DeepSpeed's, but divided by the groups again; biases at the positions that a convolution would have."""
    weight, bias, groups = call.argument(1, "weight"), call.argument(2, "bias"), call.argument(6, "groups") or 1
    macs = 2 * convolution(call) // groups
    return macs if bias is None else macs + call.input.shape[0] * weight.shape[1] * _positions(call)


def _positions(call: FunctionCall) -> int:
    """Positions of the output of a convolution that is not transposed."""
    kernel = call.argument(1, "weight").shape[2:]
    stride, padding, dilation = (call.argument(place, name) for place, name in _OF_CONVOLUTION)
    sizes = zip(call.input.shape[2:], kernel, stride, padding, dilation, strict=True)
    return prod((size + 2 * around - apart * (taps - 1) - 1) // step + 1 for size, taps, step, around, apart in sizes)


_OF_CONVOLUTION = ((3, "stride"), (4, "padding"), (7, "dilation"))


def _resized(call: FunctionCall) -> int:
    """One operation for each position where a size is given, else for each element of the input."""
    size = call.argument(1, "size")
    return call.input.numel() if size is None else prod(first(call.output).shape[2:])


_NOT_COUNTED = (
    *("Tensor.__matmul__", "functional.scaled_dot_product_attention"),
    *("torch.mm", "torch.bmm", "Tensor.mm", "Tensor.bmm"),
)
RULES: dict[str, FunctionRule] = {
    **{name: rule for name, rule in deepspeed.RULES.items() if name not in _NOT_COUNTED},
    **each(_resized, ("interpolate", "upsample")),
    **each(_transposed, (f"conv_transpose{axes}d" for axes in (1, 2, 3))),
}
_of_functions, _sees = by_functions(RULES)

TOOL = Tool(
    "calflops",
    "calflops 0.3.2",
    "FLOPs",
    "functions that are called by name, two FLOPs for each multiply-accumulate, one for biases and activations; no "
    "products by `@`, mm and bmm, and no fused attention",
    deepspeed.count_by(_of_functions),
    _sees,
)
