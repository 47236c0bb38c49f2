"""DeepSpeed's `get_model_profile`: the functions of PyTorch that a pass calls by their names."""

from collections.abc import Callable
from math import prod

from ctxbench.plugins.macs.tools.calls import (
    CONVOLUTIONS,
    POOLS,
    Calls,
    FunctionCall,
    FunctionRule,
    Tool,
    by_functions,
    by_layers,
    first,
)
from ctxbench.plugins.macs.tools.functions import (
    attention,
    convolution,
    each,
    einsum_operations,
    inputs,
    linear,
    norm,
    outputs,
    product,
    product_and_sum,
    recurrent,
)


def twice(rule: FunctionRule) -> FunctionRule:
    """Two operations for each multiply-accumulate."""
    return lambda call: 2 * rule(call)


def _convolution(call: FunctionCall) -> int:
    """Two operations for each multiply-accumulate, one for each bias that is added."""
    has_bias = call.argument(2, "bias") is not None
    return 2 * convolution(call) + has_bias * first(call.output).numel()


def _resized(call: FunctionCall) -> int:
    """One operation for each element of the output; for each position alone where a size is given."""
    out = first(call.output)
    return prod(out.shape[2:]) if call.argument(1, "size") is not None else out.numel()


def _einsum(call: FunctionCall) -> int:
    return einsum_operations(call.args[0], [each.shape for each in call.args[1:]])


_ACTIVATIONS = ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu", "softmax")

RULES: dict[str, FunctionRule] = {
    **each(_convolution, CONVOLUTIONS),
    **each(inputs, (*POOLS, *_ACTIVATIONS)),
    **each(_resized, ("interpolate", "upsample")),
    **each(outputs(), ("mul", "add"), "torch", "Tensor"),
    **each(twice(product), ("matmul", "mm", "bmm"), "torch", "Tensor"),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm", "torch.baddbmm"), product_and_sum(2)),
    "Tensor.__matmul__": twice(product),
    "torch.einsum": _einsum,
    "functional.linear": twice(linear),
    "functional.scaled_dot_product_attention": twice(attention),
    "functional.batch_norm": norm(3, 1, 2),
    "functional.layer_norm": norm(2, 4, 5),
    "functional.group_norm": norm(2, 4, 5),
    "functional.instance_norm": norm(3, 4, 5),
}
_of_functions, _sees = by_functions(RULES)


_of_layers, _ = by_layers(recurrent(2))


def count_by(functions: Callable[[Calls], int]) -> Callable[[Calls], int]:
    """The count of functions, and of recurrent layers."""
    return lambda calls: functions(calls) + _of_layers(calls)


TOOL = Tool(
    "DeepSpeed",
    "deepspeed 0.19.8",
    "FLOPs",
    "functions that are called by name, two FLOPs for each multiply-accumulate, one for biases and activations",
    count_by(_of_functions),
    _sees,
)
