"""Spatial-reduction attention: all positions attend to the cells of a coarser map, which a strided convolution makes.

Source: Wang et al., Pyramid Vision Transformer, ICCV 2021; from its equations, with the layers and the start of
SegFormer (Xie et al., NeurIPS 2021). Inputs are padded with zeros below and at the right to multiples of the reduction,
where the public version drops the rows and columns that are left over. Four is the reduction of SegFormer's second
stage. No residual and no norm around it.

The fused kernel holds no map of all pairs. Linear layers on [B, n, C], since it takes maps whose channels of a position
are side by side.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_heads, check_input, check_positive
from ctxbench.modules._layers import start_by_outputs, start_small
from ctxbench.registry import register


@register(
    "sra",
    title="Spatial-reduction attention (SRA)",
    paper="Wang et al., Pyramid Vision Transformer, ICCV 2021",
    year=2021,
    family="sparse attention",
    params="4*C**2 + C + (3*C if qkv_bias else 0) + (reduction**2*C**2 + 3*C if reduction > 1 else 0)",
    macs=(
        "2*N*C**2 + B*(-(-H//reduction))*(-(-W//reduction))"
        "*(2*C**2 + 2*n*C + (reduction**2*C**2 + C if reduction > 1 else 0))"
    ),
    complexity="n**2*C/reduction**2 + n*C**2",
    public_code="NVlabs/SegFormer, NVIDIA Source Code License (non-commercial)",
)
class SpatialReductionAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the cells of the coarser map are `reduction` x `reduction` positions."""

    def __init__(self, channels: int, *, heads: int = 8, reduction: int = 4, qkv_bias: bool = True) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, reduction=reduction)
        check_heads("sra", channels, heads)
        self.channels, self.heads, self.reduction = channels, heads, reduction
        self.q = nn.Linear(channels, channels, bias=qkv_bias)
        self.kv = nn.Linear(channels, 2 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        start_small(self.q, self.kv, self.proj)
        if reduction > 1:
            self.sr = nn.Conv2d(channels, channels, reduction, reduction)
            self.norm = nn.LayerNorm(channels)
            start_by_outputs([self.sr])

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "sra")
        key, value = self.kv(self._cells(x)).chunk(2, dim=2)
        query = self._split(self.q(x.flatten(2).transpose(1, 2)))
        context = functional.scaled_dot_product_attention(query, self._split(key), self._split(value))
        context = self.proj(context.transpose(1, 2).flatten(2))
        return torch.unflatten(context.transpose(1, 2), 2, x.shape[2:])

    def _cells(self, x: Tensor) -> Tensor:
        """The coarser map of [B, C, H, W], as tokens [B, m, C]."""
        if self.reduction == 1:
            return x.flatten(2).transpose(1, 2)
        down, across = -x.size(2) % self.reduction, -x.size(3) % self.reduction
        if down or across:
            x = functional.pad(x, (0, across, 0, down))
        out: Tensor = self.norm(self.sr(x).flatten(2).transpose(1, 2))
        return out

    def _split(self, tokens: Tensor) -> Tensor:
        """[B, n, C] to [B, heads, n, C / heads]."""
        return torch.unflatten(tokens, 2, (self.heads, -1)).transpose(1, 2)
