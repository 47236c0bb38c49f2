"""Efficient attention: keys are normalised over the positions, queries over their channels; its cost is linear in n.

Source: Shen et al., Efficient Attention: Attention with Linear Complexities, WACV 2021.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_heads, check_input, check_positive, reduced
from ctxbench.registry import register


@register(
    "efficient",
    title="Efficient attention",
    paper="Shen et al., Efficient Attention: Attention with Linear Complexities, WACV 2021",
    year=2021,
    family="attention",
    params="4*C*(C//reduction) + 3*(C//reduction) + C",
    macs="4*N*C*(C//reduction) + 2*N*(C//reduction)*(C//reduction//heads)",
)
class EfficientAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; keys, queries and values have C // `reduction` channels in `heads` heads."""

    def __init__(self, channels: int, *, reduction: int = 2, heads: int = 1) -> None:
        super().__init__()
        width = reduced("efficient", channels, reduction)
        check_positive(heads=heads)
        check_heads("efficient", width, heads)
        self.channels, self.heads = channels, heads
        self.key = nn.Conv2d(channels, width, 1)
        self.query = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, width, 1)
        self.output = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "efficient")
        key, query, value = (
            torch.unflatten(project(x).flatten(2), 1, (self.heads, -1)).flatten(0, 1)  # [B * heads, k / heads, n]
            for project in (self.key, self.query, self.value)
        )
        # A weight is about 1 / n, which float16 does not hold well: the sums over the positions are widened.
        wide = torch.promote_types(x.dtype, torch.float32)
        weights = torch.softmax(key, dim=2, dtype=wide)
        context = torch.bmm(weights, value.to(wide).transpose(1, 2)).to(x.dtype)  # [B * heads, k / heads, v / heads]
        out = torch.bmm(context.transpose(1, 2), torch.softmax(query, dim=1))
        out = torch.unflatten(torch.unflatten(out, 0, (-1, self.heads)).flatten(1, 2), 2, x.shape[2:])
        y: Tensor = x + self.output(out)
        return y
