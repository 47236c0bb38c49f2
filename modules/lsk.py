"""Large selective kernel: each position is weighed by a small and by a large window, and chooses between the two.

Source: Li et al., Large Selective Kernel Network for Remote Sensing Object Detection, ICCV 2023; from its equations.
The attention of a block, with the residual around it. Not global: nothing outside the window is seen.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._layers import depthwise, largest
from ctxbench.registry import register

from ._visual_attention import VisualAttention


class SelectiveUnit(nn.Module):
    """Features [B, C, H, W] to weights: two windows, one on the other, by their means and maxima over the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.conv0, self.conv_spatial = depthwise(channels, 5), depthwise(channels, 7, dilation=3)
        self.conv1, self.conv2 = nn.Conv2d(channels, half, 1), nn.Conv2d(channels, half, 1)
        self.conv_squeeze = nn.Conv2d(2, 2, 7, padding=3)
        self.conv = nn.Conv2d(half, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        near = self.conv0(x)
        near, far = self.conv1(near), self.conv2(self.conv_spatial(near))
        both = torch.cat([near, far], dim=1)
        summary = torch.cat([both.mean(dim=1, keepdim=True), largest(both, 1)], dim=1)
        of_near, of_far = torch.sigmoid(self.conv_squeeze(summary)).chunk(2, dim=1)
        weights: Tensor = self.conv(near * of_near + far * of_far)
        return weights


@register(
    "lsk",
    title="Large selective kernel (LSK)",
    paper="Li et al., Large Selective Kernel Network for Remote Sensing Object Detection, ICCV 2023",
    year=2023,
    family="large kernel",
    params="2*C**2 + 79*C + 3*C*(C//2) + 2*(C//2) + 198",
    macs="N*(2*C**2 + 75*C + 3*C*(C//2) + 2*(C//2) + 197)",
    complexity="n*C**2",
    position_mixing=False,
    reach="min(29, H)*min(29, W)",
    public_code="zcablii/LSKNet, CC BY-NC 4.0",
)
class LargeSelectiveKernel(VisualAttention):
    """[B, C, H, W] to [B, C, H, W]; C is at least 2."""

    name = "lsk"

    def __init__(self, channels: int) -> None:
        if channels == 1:
            raise ValueError("lsk has 1 channel; it needs at least 2, one of each window")
        super().__init__(channels)

    def unit(self, channels: int) -> nn.Module:
        return SelectiveUnit(channels)
