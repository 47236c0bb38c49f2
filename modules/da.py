"""Dual attention: a position branch over all pixels and a channel branch over all channels, summed.

Source: Fu et al., Dual Attention Network for Scene Segmentation, CVPR 2019. Without the 3x3 convolutions that the
paper's head puts before the branches and without its classifiers; with the 3x3 convolution behind each branch.

The form decides the memory peak: as published, the position branch keeps the affinity before its softmax referenced
until it returns, so two n x n maps are alive beside every later tensor of the branch (2203 MiB in inference at
[1, 512, 128, 128]). The product is channel-first, values times the transposed affinity.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register


class PositionAttention(nn.Module):
    """Self-attention over the n positions, scaled by a learned factor (0 at first) and added to the input."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.query = nn.Conv2d(channels, width, 1)
        self.key = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).flatten(2)  # [B, C / reduction, n]
        key = self.key(x).flatten(2)
        raw = torch.bmm(query.transpose(1, 2), key)  # [B, n queries, n keys]; named, so it lives to the end
        affinity = torch.softmax(raw, dim=2)
        value = self.value(x).flatten(2)
        context = torch.unflatten(torch.bmm(value, affinity.transpose(1, 2)), 2, x.shape[2:])
        out: Tensor = self.scale * context + x
        return out


class ChannelAttention(nn.Module):
    """Attention over the C channels by their dissimilarity, scaled by a learned factor (0 at first), plus the input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(2)  # [B, C, n]
        gram = torch.bmm(rows, rows.transpose(1, 2))
        affinity = torch.softmax(gram.max(dim=2, keepdim=True).values - gram, dim=2)
        context = torch.unflatten(torch.bmm(affinity, rows), 2, x.shape[2:])
        out: Tensor = self.scale * context + x
        return out


def _head(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
    )


@register(
    "da",
    title="Dual attention (DA)",
    paper="Fu et al., Dual Attention Network for Scene Segmentation, CVPR 2019",
    year=2019,
    family="attention",
    params="19*C**2 + 2*(C + 1)*(C//reduction) + 5*C + 2",
    macs="N*(19*C**2 + 2*C*(C//reduction)) + B*n**2*(C//reduction + C) + 2*N*C**2 + 4*N*C",
    complexity="n**2*C + n*C**2",
    public_code="junfu1115/DANet, MIT",
)
class DualAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; queries and keys of the position branch have `C // reduction` channels."""

    def __init__(self, channels: int, *, reduction: int = 8) -> None:
        super().__init__()
        check_positive(channels=channels, reduction=reduction)
        if channels < reduction:
            raise ValueError(f"channels is {channels}; da needs at least reduction ({reduction}) channels")
        self.channels = channels
        self.position = PositionAttention(channels, channels // reduction)
        self.position_head = _head(channels)
        self.channel = ChannelAttention()
        self.channel_head = _head(channels)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "da")
        out: Tensor = self.position_head(self.position(x)) + self.channel_head(self.channel(x))
        return out
