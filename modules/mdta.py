"""Multi-Dconv head transposed attention: channels attend to channels, after a depthwise convolution of their maps.

Source: Zamir et al., Restormer: Efficient Transformer for High-Resolution Image Restoration, CVPR 2022; from its
equations. Restormer's heads are 48 channels wide; eight heads are ctxbench's choice. No residual and no norm.
"""

from torch import Tensor, nn

from ctxbench.modules._checks import check_input
from ctxbench.modules._layers import depthwise
from ctxbench.registry import register

from ._channel_attention import ChannelAttention


@register(
    "mdta",
    title="Transposed attention (MDTA)",
    paper=("Zamir et al., Restormer: Efficient Transformer for High-Resolution Image Restoration, CVPR 2022"),
    year=2022,
    family="channel attention",
    params="4*C**2 + 27*C + heads + (7*C if bias else 0)",
    macs="N*(4*C**2 + 27*C) + 2*N*C*(C//heads) + B*C*(C//heads)",
    complexity="n*C**2",
    public_code="swz30/Restormer, Academic Public License",
)
class TransposedAttention(ChannelAttention):
    """[B, C, H, W] to [B, C, H, W]; `bias` is that of the convolutions."""

    name = "mdta"

    def __init__(self, channels: int, *, heads: int = 8, bias: bool = False) -> None:
        super().__init__(channels, heads)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1, bias=bias)
        self.qkv_dwconv = depthwise(3 * channels, 3, bias=bias)
        self.project_out = nn.Conv2d(channels, channels, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "mdta")
        out: Tensor = self.project_out(self.attend(self.qkv_dwconv(self.qkv(x))))
        return out
