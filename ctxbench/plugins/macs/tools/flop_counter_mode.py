"""`torch.utils.flop_counter.FlopCounterMode` of PyTorch on the CPU: products and convolutions, two FLOPs a MAC."""

from collections.abc import Collection

from ctxbench.meta.fused_attention import is_fusible
from ctxbench.plugins.macs.rules import PRODUCTS
from ctxbench.plugins.macs.tools.calls import Calls, CallWithin, Counting, Rule, Tool

# It has no rule for a product with a vector.
_VECTORS = {"aten::dot", "aten::vdot", "aten::mv", "aten::addmv", "aten::addbmm"}
_ATTENTION = "aten::scaled_dot_product_attention"


def below_autograd(products: Collection[str], rule: Rule) -> Counting:
    """Count and sight of a tool with a rule for these products, as composites call them.

    It sees the products of attention where the CPU has no fused operator for them, and none of an LSTM, which it fuses.
    """

    def sees(call: CallWithin) -> bool:
        if call.name == _ATTENTION:
            return not is_fusible(*call.args[:3])
        return call.name in products and "aten::lstm" not in call.around

    def count(calls: Calls) -> int:
        return sum(rule(each) for each in calls.operators if sees(each))

    return count, sees


_count, _sees = below_autograd(PRODUCTS.keys() - _VECTORS, lambda call: 2 * call.macs)

TOOL = Tool(
    "FlopCounterMode",
    "torch 2.13.0",
    "FLOPs",
    "matrix products and convolutions, two FLOPs for each multiply-accumulate; on the CPU no fused attention, no LSTM",
    _count,
    _sees,
)
