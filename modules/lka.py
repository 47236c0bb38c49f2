"""Large kernel attention: each position is weighed by a window of 23 x 23, which two depthwise convolutions make.

Source: Guo et al., Visual Attention Network, Computational Visual Media 2023. As published: the attention of a block,
with the residual around it. Not global: nothing outside the window is seen.
"""

from collections import OrderedDict

from torch import nn

from ctxbench.modules._layers import depthwise
from ctxbench.registry import register

from ._visual_attention import VisualAttention


@register(
    "lka",
    title="Large kernel attention (LKA)",
    paper="Guo et al., Visual Attention Network, Computational Visual Media 2023",
    year=2022,
    family="large kernel",
    params="3*C**2 + 79*C",
    macs="N*(3*C**2 + 74*C) + N*C",
    complexity="n*C**2",
    position_mixing=False,
    reach="min(23, H)*min(23, W)",
    public_code="Visual-Attention-Network/VAN-Classification, Apache-2.0",
)
class LargeKernelAttention(VisualAttention):
    """[B, C, H, W] to [B, C, H, W]."""

    name = "lka"

    def unit(self, channels: int) -> nn.Module:
        wide = depthwise(channels, 7, dilation=3)
        conv0, conv1 = depthwise(channels, 5), nn.Conv2d(channels, channels, 1)
        return nn.Sequential(OrderedDict(conv0=conv0, conv_spatial=wide, conv1=conv1))
