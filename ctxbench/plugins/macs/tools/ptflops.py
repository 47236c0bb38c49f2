"""ptflops with its default backend, `aten`: products and convolutions of one image."""

from ctxbench.plugins.macs.tools.calls import Tool, first, of_one_image
from ctxbench.plugins.macs.tools.flop_counter_mode import below_autograd
from ctxbench.plugins.macs.watch import OperatorCall


def _with_biases(call: OperatorCall) -> int:
    """Multiply-accumulates, and one operation for each bias that is added."""
    has_bias = call.name == "aten::addmm" or (call.name == "aten::convolution" and call.args[2] is not None)
    return call.macs + (first(call.output).numel() if has_bias else 0)


_count, _sees = below_autograd(("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution"), _with_biases)

TOOL = Tool(
    "ptflops",
    "ptflops 0.7.5",
    "MACs",
    "matrix products and convolutions once, with biases, of one image, whatever the batch; no fused attention, no LSTM",
    of_one_image(_count),
    _sees,
)
