"""`torch.utils.flop_counter.FlopCounterMode` of PyTorch on the CPU: products and convolutions, two FLOPs a MAC."""

from ctxbench.meta.fused_attention import is_fusible
from ctxbench.plugins.macs.rules import PRODUCTS
from ctxbench.plugins.macs.tools.calls import Calls, OperatorCall, Tool

# It has no rule for a product with a vector.
_VECTORS = ("aten::dot", "aten::vdot", "aten::mv", "aten::addmv", "aten::addbmm")
_ATTENTION = "aten::scaled_dot_product_attention"


def _sees(call: OperatorCall) -> bool:
    """Return whether it has a rule: it has one for fused attention on a GPU, and none for the CPU's."""
    if call.name == _ATTENTION:
        return not is_fusible(*call.args[:3])
    return call.name in PRODUCTS and call.name not in _VECTORS


def _count(calls: Calls) -> int:
    return sum(2 * each.macs for each in calls.operators if _sees(each))


TOOL = Tool(
    "FlopCounterMode",
    "torch 2.13.0",
    "FLOPs",
    "matrix products and convolutions, two FLOPs for each multiply-accumulate; on the CPU no fused attention",
    _count,
    _sees,
)
