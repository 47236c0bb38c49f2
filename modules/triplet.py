"""Triplet attention: three planes of the map, of which each pair of axes is one, weigh it by windows in that plane.

Source: Misra et al., Rotate to Attend: Convolutional Triplet Attention Module, WACV 2021. As published. A window lies
over channels in their order, too. A position sees its own row and column, as wide as the window.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import largest
from ctxbench.registry import register


class PlaneGate(nn.Module):
    """Weights [B, 1, ., .] of a plane from the maximum and the mean over the third axis, [B, 2, ., .]."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)
        self.conv = nn.Sequential(OrderedDict(conv=conv, bn=nn.BatchNorm2d(1, momentum=0.01)))

    def forward(self, summary: Tensor) -> Tensor:
        return torch.sigmoid(self.conv(summary))


@register(
    "triplet",
    title="Triplet attention",
    paper="Misra et al., Rotate to Attend: Convolutional Triplet Attention Module, WACV 2021",
    year=2021,
    family="pooling",
    params="(2 if no_spatial else 3)*(2*kernel_size**2 + 2)",
    macs=("(2*kernel_size**2 + 2)*(B*C*(H + W) + (0 if no_spatial else N)) + N*C"),
    complexity="n*C",
    position_mixing=False,
    reach="min(kernel_size, W)*H + min(kernel_size, H)*W - min(kernel_size, H)*min(kernel_size, W)",
    public_code="landskape-ai/triplet-attention, MIT",
)
class TripletAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; windows of `kernel_size`, odd; `no_spatial`: two planes."""

    def __init__(self, channels: int, *, kernel_size: int = 7, no_spatial: bool = False) -> None:
        super().__init__()
        check_positive(channels=channels, kernel_size=kernel_size)
        check_odd("triplet", kernel_size=kernel_size)
        self.channels = channels
        self.cw, self.hc = PlaneGate(kernel_size), PlaneGate(kernel_size)
        self.hw = None if no_spatial else PlaneGate(kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "triplet")
        by_column = self.cw(_summary(x, 2).transpose(1, 2)).transpose(1, 2)  # [B, C, 1, W]
        rows = _summary(x, 3).permute(0, 3, 2, 1)  # [B, 2, H, C]
        total = by_column + self.hc(rows).permute(0, 3, 2, 1)
        if self.hw is None:
            return torch.mul(x, total / 2)
        return torch.mul(x, (total + self.hw(_summary(x, 1))) / 3)


def _summary(x: Tensor, dim: int) -> Tensor:
    """The maximum and the mean along a dimension, in its place."""
    return torch.cat([largest(x, dim), x.mean(dim, keepdim=True)], dim=dim)
