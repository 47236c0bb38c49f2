"""Multi-head self-attention over the positions, through torch's fused scaled dot product.

Source: Vaswani et al., Attention Is All You Need, NeurIPS 2017, as a residual block over pixels. No norm, a bias in
every projection. The fused kernel holds no n x n map. It takes maps whose channels of a position are side by side, so
the projections are linear layers on [B, n, C].
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_heads, check_input, check_positive
from ctxbench.registry import register


@register(
    "mhsa",
    title="Multi-head self-attention (MHSA)",
    paper="Vaswani et al., Attention Is All You Need, NeurIPS 2017",
    year=2017,
    family="attention",
    params="4*C**2 + 4*C",
    macs="4*N*C**2 + 2*B*n**2*C",
)
class MultiHeadSelfAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `heads` divides C."""

    def __init__(self, channels: int, *, heads: int = 8) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads)
        check_heads("mhsa", channels, heads)
        self.channels, self.heads = channels, heads
        self.project = nn.Linear(channels, 3 * channels)
        self.output = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "mhsa")
        maps = torch.unflatten(self.project(x.flatten(2).transpose(1, 2)), 2, (3, self.heads, -1))
        query, key, value = maps.permute(2, 0, 3, 1, 4)  # each [B, heads, n, C / heads]
        context = functional.scaled_dot_product_attention(query, key, value)
        context = self.output(context.transpose(1, 2).flatten(2))  # [B, n, C]
        out: Tensor = x + torch.unflatten(context.transpose(1, 2), 2, x.shape[2:])
        return out
