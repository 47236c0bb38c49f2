"""Mamba-inspired linear attention: linear attention with rotary positions between gated depthwise convolutions.

Source: Han et al., Demystify Mamba in Vision: A Linear Attention Perspective, NeurIPS 2024. The mixing half of the
block: without its position convolutions, layer norms, residual and MLP. The denominator is without rotation. Any H and
W, where the public version takes one square size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_heads, check_input, check_positive
from ctxbench.modules._rope import angles, turned
from ctxbench.registry import register

OFFSET = 1e-6  # keeps the denominator above zero, as published
BASE = 10000.0


@register(
    "mila",
    title="Mamba-inspired linear attention (MILA)",
    paper="Han et al., Demystify Mamba in Vision: A Linear Attention Perspective, NeurIPS 2024",
    year=2024,
    family="linear attention",
    params="5*C**2 + 25*C",
    macs="5*N*C**2 + 18*N*C + 2*N*C*(C//heads) + N*C + 6*N*C + B*C + (C//4)*(H + W)",
    complexity="n*C**2",
    public_code="LeapLabTHU/MLLA, MIT",
)
class MambaInspiredAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; C is a multiple of 4 and of `heads`."""

    def __init__(self, channels: int, *, heads: int = 16) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads)
        check_heads("mila", channels, heads)
        if channels % 4:
            raise ValueError(f"channels is {channels}; mila needs a multiple of 4 for its rotary positions")
        self.channels, self.heads = channels, heads
        self.gate, self.input = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.local = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.query, self.key = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.detail = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.output = nn.Conv2d(channels, channels, 1)
        for layer in (self.gate, self.input, self.query, self.key, self.output):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # there is one

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "mila")
        gate = functional.silu(self.gate(x))
        value = functional.silu(self.local(self.input(x)))
        wide = torch.promote_types(x.dtype, torch.float32)
        query, key = (functional.elu(project(value).flatten(2).to(wide)) + 1 for project in (self.query, self.key))
        context = self._attend(query, key, value.flatten(2).to(wide), x).to(x.dtype)
        out: Tensor = self.output((torch.unflatten(context, 2, x.shape[2:]) + self.detail(value)) * gate)
        return out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, x: Tensor) -> Tensor:
        """[B, C, n] each to [B, C, n]."""
        count = self.channels // 4
        steps = torch.arange(count, device=x.device, dtype=query.dtype)
        turns = angles(BASE ** (-steps / count), int(x.size(2)), int(x.size(3)))
        cosine, sine = turns.cos(), turns.sin()
        turned_query, turned_key = (self._split(turned(each, cosine, sine)) for each in (query, key))
        query, key, value = self._split(query), self._split(key), self._split(value)
        weights = torch.bmm(key.mean(2, keepdim=True).transpose(1, 2), query) + OFFSET  # [B * heads, 1, n]
        memory = torch.bmm(turned_key, value.transpose(1, 2)) / value.size(2)  # [B * heads, C / heads, C / heads]
        context = torch.bmm(memory.transpose(1, 2), turned_query) * weights.reciprocal()
        return torch.unflatten(context, 0, (-1, self.heads)).flatten(1, 2)

    def _split(self, tokens: Tensor) -> Tensor:
        """[B, C, n] to [B * heads, C / heads, n]."""
        return torch.unflatten(tokens, 1, (self.heads, -1)).flatten(0, 1)
