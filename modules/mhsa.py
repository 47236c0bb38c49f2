"""Multi-head self-attention over the positions, through torch's fused scaled dot product.

Source: Vaswani et al., Attention Is All You Need, NeurIPS 2017, as a residual block over pixels. No norm, a bias in
every convolution. A fused kernel holds no n x n map; the fallback of `scaled_dot_product_attention` does.
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
        self.query = nn.Conv2d(channels, channels, 1)
        self.key = nn.Conv2d(channels, channels, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.output = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "mhsa")
        query, key, value = (
            torch.unflatten(project(x).flatten(2), 1, (self.heads, -1)).transpose(2, 3)  # [B, heads, n, C / heads]
            for project in (self.query, self.key, self.value)
        )
        context = functional.scaled_dot_product_attention(query, key, value)
        context = torch.unflatten(context.transpose(2, 3).flatten(1, 2), 2, x.shape[2:])
        out: Tensor = x + self.output(context)
        return out
