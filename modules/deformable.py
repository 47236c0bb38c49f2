"""Deformable attention: each position reads a few places of the map, whose offsets and weights it makes itself.

Source: Zhu et al., Deformable DETR: Deformable Transformers for End-to-End Object Detection, ICLR 2021; from its
equations, on one map, whose positions are the queries, without position code. At the start of training the places lie
on eight rays around the position. Half types take places and samples in float32: a coordinate in bfloat16 is a whole
position off at 512.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_heads, check_input, check_positive
from ctxbench.modules._layers import start_xavier, without_autocast
from ctxbench.registry import register


@register(
    "deformable",
    title="Deformable attention (Deformable DETR)",
    paper="Zhu et al., Deformable DETR: Deformable Transformers for End-to-End Object Detection, ICLR 2021",
    year=2021,
    family="sparse attention",
    params="2*C**2 + 2*C + 3*heads*points*(C + 1)",
    macs="N*(2*C**2 + 3*heads*points*C + 5*points*C)",
    complexity="n*C**2 + n*heads*points*C",
    position_mixing=False,
    reach="by content",
    public_code="fundamentalvision/Deformable-DETR, Apache-2.0",
)
class DeformableAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `points` places for each of `heads` heads; places outside the map are zero."""

    def __init__(self, channels: int, *, heads: int = 8, points: int = 4) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, points=points)
        check_heads("deformable", channels, heads)
        self.channels, self.heads, self.points = channels, heads, points
        self.sampling_offsets = nn.Linear(channels, 2 * heads * points)
        self.attention_weights = nn.Linear(channels, heads * points)
        self.value_proj, self.output_proj = nn.Linear(channels, channels), nn.Linear(channels, channels)
        for layer in (self.sampling_offsets, self.attention_weights):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        start_xavier(self.value_proj, self.output_proj)
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(self._rays())

    def _rays(self) -> Tensor:
        """Offsets of each head: 1, 2, ... positions along a ray of its own, (x, y) of each point."""
        angle = torch.arange(self.heads, dtype=torch.float32) * (2 * math.pi / self.heads)
        ray = torch.stack((angle.cos(), angle.sin()), dim=1)
        ray = ray / ray.abs().amax(1, keepdim=True)
        return (torch.arange(1.0, self.points + 1)[:, None] * ray[:, None]).flatten()

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "deformable")
        wide = torch.promote_types(x.dtype, torch.float32)
        tokens = x.flatten(2).transpose(1, 2)  # [B, n, C]
        value = self.value_proj(tokens).to(wide).transpose(1, 2).reshape(-1, self.channels // self.heads, *x.shape[2:])
        weights = torch.softmax(torch.unflatten(self.attention_weights(tokens).to(wide), 2, (self.heads, -1)), dim=3)
        # on the CPU grid_sample reads wrong memory in half types (docs/upstream.md), so `value` is wide
        sampled = functional.grid_sample(value.contiguous(), self._grid(tokens, x, wide), align_corners=False)
        context = (sampled * weights.transpose(1, 2).flatten(0, 1).unsqueeze(1)).sum(3)  # [B heads, C / heads, n]
        out = self.output_proj(context.reshape(x.size(0), self.channels, -1).transpose(1, 2).to(x.dtype))
        return torch.unflatten(out.transpose(1, 2), 2, x.shape[2:])

    def _grid(self, tokens: Tensor, x: Tensor, wide: torch.dtype) -> Tensor:
        """[B heads, n, points, 2]: places (x, y) from -1 to 1, the outer borders of the map."""
        height, width = map(int, x.shape[2:])
        weight, bias = self.sampling_offsets.weight.to(wide), self.sampling_offsets.bias.to(wide)
        with without_autocast(x):
            offsets = torch.unflatten(functional.linear(tokens.to(wide), weight, bias), 2, (self.heads, -1))
        offsets = torch.unflatten(offsets.transpose(1, 2).flatten(0, 1), 2, (self.points, 2))
        row, column = (torch.arange(side, device=x.device, dtype=wide) + 0.5 for side in (height, width))
        centre = torch.stack((column.expand(height, -1), row[:, None].expand(-1, width)), dim=2).flatten(0, 1)
        half = torch.stack([row.new_full((), side / 2) for side in (width, height)])
        return (offsets + centre[:, None]) / half - 1
