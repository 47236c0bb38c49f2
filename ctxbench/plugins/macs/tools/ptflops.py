"""ptflops: by its default backend, `aten`, products and convolutions; by `pytorch`, layers by hooks and functions."""

from torch import nn

from ctxbench.plugins.macs.tools.calls import (
    POOLS,
    Calls,
    CallWithin,
    FunctionRule,
    LayerCall,
    LayerRule,
    Tool,
    by_functions,
    by_layers,
    first,
    layers,
    of_one_image,
)
from ctxbench.plugins.macs.tools.flop_counter_mode import below_autograd
from ctxbench.plugins.macs.tools.functions import each, inputs, outputs, product, product_and_sum, recurrent


def _with_biases(call: CallWithin) -> int:
    """Multiply-accumulates, and one operation for each bias that is added."""
    has_bias = call.name == "aten::addmm" or (call.name == "aten::convolution" and call.args[2] is not None)
    return call.macs + (first(call.output).numel() if has_bias else 0)


_of_products, _sees_products = below_autograd(
    ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution"), _with_biases
)

TOOL = Tool(
    "ptflops",
    "ptflops 0.7.5",
    "MACs",
    "matrix products and convolutions once, with biases, of one image, whatever the batch; no fused attention, no LSTM",
    of_one_image(_of_products),
    _sees_products,
)


def _convolution(call: LayerCall) -> int:
    """All weights once for each position of the output, or of the input if transposed, and the biases."""
    at = call.input if call.layer.transposed else call.output
    biases = call.output.numel() if call.layer.bias is not None else 0
    return int(call.layer.weight.numel() * at.numel() // at.shape[1] + biases)


def _linear(call: LayerCall) -> int:
    return int(call.output.numel() * (call.layer.in_features + (call.layer.bias is not None)))


def _norm(call: LayerCall) -> int:
    """Two operations an element; one without weights, and of layer norm."""
    return call.input.numel() * (2 if getattr(call.layer, "affine", False) else 1)


def _output(call: LayerCall) -> int:
    return int(call.output.numel())


def _input(call: LayerCall) -> int:
    return call.input.numel()


def _attention(call: LayerCall) -> int:
    """Projections with biases, the scale of the query, both products, the softmax."""
    layer, (query, key, value) = call.layer, call.inputs[:3]
    axis = 1 if layer.batch_first else 0
    affinity = query.numel() * key.shape[axis]  # multiply-accumulates of all heads
    biases = layer.in_proj_bias is not None
    projected = 2 * query.numel() + key.numel() + value.numel()
    softmax = affinity // layer.head_dim
    return int(projected * (layer.embed_dim + biases) + query.numel() + 2 * affinity + softmax)


LAYERS: dict[type, LayerRule] = {
    **dict.fromkeys(layers("Conv", "ConvTranspose"), _convolution),
    nn.Linear: _linear,
    nn.MultiheadAttention: _attention,
    **recurrent(1),
    **dict.fromkeys((*layers("BatchNorm", "InstanceNorm"), nn.LayerNorm, nn.GroupNorm), _norm),
    **dict.fromkeys((nn.ReLU, nn.PReLU, nn.ELU, nn.LeakyReLU, nn.ReLU6, nn.GELU, nn.Upsample), _output),
    **dict.fromkeys(layers("AvgPool", "MaxPool", "AdaptiveAvgPool", "AdaptiveMaxPool"), _input),
}
# Layers call these, too, which then count twice.
FUNCTIONS: dict[str, FunctionRule] = {
    **each(inputs, (*POOLS, "relu", "prelu", "elu", "relu6", "gelu", "silu", "softmax")),
    **each(outputs(), ("interpolate", "upsample")),
    **each(outputs(), ("mul", "add"), "torch", "Tensor"),
    **each(product, ("matmul", "mm", "bmm"), "torch", "Tensor"),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm", "torch.baddbmm"), product_and_sum(1)),
}
_of_layers, _sees_layers = by_layers(LAYERS)
_of_functions, _sees_functions = by_functions(FUNCTIONS)


def _count(calls: Calls) -> int:
    return _of_layers(calls) + _of_functions(calls)


def _sees(call: CallWithin) -> bool:
    return _sees_layers(call) or _sees_functions(call)


BY_LAYERS = Tool(
    "ptflops, by layers",
    "ptflops 0.7.5",
    "MACs",
    "layers with biases, norms two operations an element, some functions, of one image; activations, pooling and "
    "upsampling that are layers count twice: as a layer, and as the function that it calls",
    of_one_image(_count),
    _sees,
)
