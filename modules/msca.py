"""Multi-scale convolutional attention: each position is weighed by windows up to 25 x 25, made of strips.

Source: Guo et al., SegNeXt: Rethinking Convolutional Attention Design for Semantic Segmentation, NeurIPS 2022. As
published: the attention of a block, with the residual around it. Not global: nothing outside the window is seen.
"""

from torch import Tensor, nn

from ctxbench.modules._layers import depthwise
from ctxbench.registry import register

from ._visual_attention import VisualAttention

STRIPS = (7, 11, 21)


class Strips(nn.Module):
    """The sum of windows of four sizes, with the channels mixed: [B, C, H, W] to [B, C, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv0 = depthwise(channels, 5)
        for place, length in enumerate(STRIPS):
            self.add_module(f"conv{place}_1", depthwise(channels, (1, length)))
            self.add_module(f"conv{place}_2", depthwise(channels, (length, 1)))
        self.conv3 = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        total = window = self.conv0(x)
        for place in range(len(STRIPS)):
            row, column = (self.get_submodule(f"conv{place}_{number}") for number in (1, 2))
            total = total + column(row(window))
        out: Tensor = self.conv3(total)
        return out


@register(
    "msca",
    title="Multi-scale convolutional attention (MSCA)",
    paper=("Guo et al., SegNeXt: Rethinking Convolutional Attention Design for Semantic Segmentation, NeurIPS 2022"),
    year=2022,
    family="large kernel",
    params="3*C**2 + 113*C",
    macs="N*(3*C**2 + 103*C) + N*C",
    complexity="n*C**2",
    position_mixing=False,
    reach="min(25, H)*min(25, W)",
    public_code="Visual-Attention-Network/SegNeXt, Apache-2.0",
)
class MultiScaleConvolutionalAttention(VisualAttention):
    """[B, C, H, W] to [B, C, H, W]."""

    name = "msca"

    def unit(self, channels: int) -> nn.Module:
        return Strips(channels)
