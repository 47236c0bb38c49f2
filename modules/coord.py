"""Coordinate attention: each position is scaled by a number from the mean of its row and one from that of its column.

Source: Hou et al., Coordinate Attention for Efficient Mobile Network Design, CVPR 2021. As published. Not global: a
position sees its row and its column alone.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register

LEAST = 8  # channels of the bottleneck


@register(
    "coord",
    title="Coordinate attention (CA)",
    paper="Hou et al., Coordinate Attention for Efficient Mobile Network Design, CVPR 2021",
    year=2021,
    family="pooling",
    params="3*C*max(8, C//reduction) + 3*max(8, C//reduction) + 2*C",
    macs="B*(H + W)*(2*C*max(8, C//reduction) + C + 2*max(8, C//reduction)) + 2*N*C",
    complexity="n*C + (H + W)*C**2",
    position_mixing=False,
    reach="H + W - 1",
    public_code="houqb/CoordAttention, MIT",
)
class CoordinateAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the bottleneck has C // `reduction` channels, eight at least."""

    def __init__(self, channels: int, *, reduction: int = 32) -> None:
        super().__init__()
        check_positive(channels=channels, reduction=reduction)
        width = max(LEAST, channels // reduction)
        self.channels = channels
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width)
        self.conv_h, self.conv_w = nn.Conv2d(width, channels, 1), nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "coord")
        of_rows, of_columns = x.mean(3, keepdim=True), x.mean(2, keepdim=True).transpose(2, 3)
        maps = self.bn1(self.conv1(torch.cat([of_rows, of_columns], dim=2)))  # [B, width, H + W, 1]
        maps = maps * functional.relu6(maps + 3) / 6
        rows, columns = maps.split([x.size(2), x.size(3)], dim=2)
        x = x * torch.sigmoid(self.conv_h(rows))
        return x * torch.sigmoid(self.conv_w(columns)).transpose(2, 3)
