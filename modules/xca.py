"""Cross-covariance attention: channels attend to channels, so that the cost is linear in the positions.

Source: El-Nouby et al., XCiT: Cross-Covariance Image Transformers, NeurIPS 2021. Without the local patch interaction
of XCiT's block, and without residual, norm and layer scale: positions are told apart by their content alone.
"""

from torch import Tensor

from ctxbench.modules._checks import check_input
from ctxbench.modules._layers import ChannelLinear, start_small
from ctxbench.registry import register

from ._channel_attention import ChannelAttention


@register(
    "xca",
    title="Cross-covariance attention (XCA)",
    paper="El-Nouby et al., XCiT: Cross-Covariance Image Transformers, NeurIPS 2021",
    year=2021,
    family="channel attention",
    params="4*C**2 + C + heads + (3*C if qkv_bias else 0)",
    macs="4*N*C**2 + 2*N*C*(C//heads) + B*C*(C//heads)",
    complexity="n*C**2",
    public_code="facebookresearch/xcit, Apache-2.0",
)
class CrossCovarianceAttention(ChannelAttention):
    """[B, C, H, W] to [B, C, H, W]; `heads` divides C."""

    name = "xca"

    def __init__(self, channels: int, *, heads: int = 8, qkv_bias: bool = True) -> None:
        super().__init__(channels, heads)
        self.qkv = ChannelLinear(channels, 3 * channels, bias=qkv_bias)
        self.proj = ChannelLinear(channels, channels)
        start_small(self.qkv, self.proj)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "xca")
        out: Tensor = self.proj(self.attend(self.qkv(x)))
        return out
