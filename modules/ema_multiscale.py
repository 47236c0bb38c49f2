"""Efficient multi-scale attention: groups of channels, weighed by means of rows and columns and by a 3x3 convolution.

Source: Ouyang et al., Efficient Multi-Scale Attention Module with Cross-Spatial Learning, ICASSP 2023; from its
equations. Often called EMA, as expectation-maximization attention (`ema`) is. Its normalisation is over the positions
of a channel.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register


@register(
    "ema_multiscale",
    title="Efficient multi-scale attention (EMA, 2023)",
    paper="Ouyang et al., Efficient Multi-Scale Attention Module with Cross-Spatial Learning, ICASSP 2023",
    year=2023,
    family="pooling",
    params="10*(C//groups)**2 + 4*(C//groups)",
    macs="B*(H + W)*C*(C//groups + 1) + N*C*(9*(C//groups) + 6) + 2*B*C",
    complexity="n*C**2/groups",
    public_code="YOLOonMe/EMA-attention-module, no licence",
)
class EfficientMultiScaleAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `groups` divides C."""

    def __init__(self, channels: int, *, groups: int = 32) -> None:
        super().__init__()
        check_positive(channels=channels, groups=groups)
        if channels % groups:
            raise ValueError(f"channels is {channels}; ema_multiscale needs a multiple of groups ({groups})")
        width = channels // groups
        self.channels, self.groups = channels, groups
        self.gn = nn.GroupNorm(width, width)
        self.conv1x1 = nn.Conv2d(width, width, 1)
        self.conv3x3 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ema_multiscale")
        groups = torch.unflatten(x, 1, (self.groups, -1)).flatten(0, 1)  # [B groups, C / groups, H, W]
        of_rows, of_columns = groups.mean(3, keepdim=True), groups.mean(2, keepdim=True).transpose(2, 3)
        gates = torch.sigmoid(self.conv1x1(torch.cat((of_rows, of_columns), dim=2)))
        rows, columns = gates.split([x.size(2), x.size(3)], dim=2)
        gated = self.gn(groups * rows * columns.transpose(2, 3))
        maps = gated, self.conv3x3(groups)
        first, second = (torch.softmax(each.mean((2, 3)), dim=1).unsqueeze(1) for each in maps)  # [B groups, 1, c]
        weights = first @ maps[1].flatten(2) + second @ gated.flatten(2)
        return (groups * torch.sigmoid(torch.unflatten(weights, 2, x.shape[2:]))).reshape(x.shape)
