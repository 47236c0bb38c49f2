"""Bidirectional WKV of Vision-RWKV: each position takes a mean of all values, weighed by their keys and their distance.

Source: Duan et al., Vision-RWKV: Efficient and Scalable Visual Perception with RWKV-Like Architectures, ICLR 2025. The
paper's equation, with the published names of parameters and the published start of the first of twelve layers. The
released kernel differs from it a little: it counts distances within segments, and leaves a residue of each token that
it passes. Half types take keys, sums and the division in float32.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.meta.scan import wkv
from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import start_small
from ctxbench.registry import register

# Columns and rows by which each quarter of the channels looks aside: left, right, above, below.
SHIFTS = ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))


@register(
    "bi_wkv",
    title="Bidirectional WKV (Vision-RWKV)",
    paper="Duan et al., Vision-RWKV: Efficient and Scalable Visual Perception with RWKV-Like Architectures, ICLR 2025",
    year=2025,
    family="state space",
    params="4*C**2 + 5*C",
    macs="4*N*C**2 + 4*N*C + 6*N*C",
    complexity="n*C**2",
    public_code="OpenGVLab/Vision-RWKV, Apache-2.0",
)
class BidirectionalWkv(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; distances are along the positions row by row, in units of their number."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_positive(channels=channels)
        self.channels = channels
        place = torch.arange(channels)
        self.spatial_decay = nn.Parameter(8 * (place / max(1, channels - 1)) ** 0.7 - 5)
        self.spatial_first = nn.Parameter(math.log(0.3) + 0.5 * ((place + 1) % 3 - 1))
        self.spatial_mix_k, self.spatial_mix_v, self.spatial_mix_r = (
            nn.Parameter(((place / channels) ** power).view(1, 1, -1)) for power in (1.0, 1.0, 0.5)
        )
        self.key, self.value, self.receptance, self.output = (
            nn.Linear(channels, channels, bias=False) for _ in range(4)
        )
        start_small(self.key, self.value, self.receptance, self.output)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "bi_wkv")
        wide = torch.promote_types(x.dtype, torch.float32)
        ends = [self.channels * part // 4 for part in range(5)]
        tokens = x.permute(0, 2, 3, 1).contiguous()  # [B, H, W, C]
        quarters = (tokens[..., start:end] for start, end in pairwise(ends))
        aside = torch.cat([functional.pad(each, (0, 0, *by)) for each, by in zip(quarters, SHIFTS, strict=True)], 3)
        inward = tokens - aside
        key = self.key(aside + self.spatial_mix_k * inward).flatten(1, 2).to(wide)
        value = self.value(aside + self.spatial_mix_v * inward).flatten(1, 2).to(wide)
        gate = torch.sigmoid(self.receptance(aside + self.spatial_mix_r * inward))
        decay, first = (each.to(wide) / key.size(1) for each in (self.spatial_decay, self.spatial_first))
        context = wkv(value, key, decay, first).to(x.dtype)
        out: Tensor = self.output(gate * torch.unflatten(context, 1, x.shape[2:]))
        return out.permute(0, 3, 1, 2)
