"""Polarity-aware linear attention: positive and negative parts of queries and keys meet in all four pairings.

Source: Meng et al., PolaFormer: Polarity-aware Linear Attention for Vision Transformers, ICLR 2025. Without the learned
table of positions, which ties the public version to one size, and equal to it while the table is zero. Half types and
autocast take the powers and their products in float32: the public version gives NaN there.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_heads, check_input, check_odd, check_positive
from ctxbench.modules._layers import without_autocast
from ctxbench.registry import register

OFFSET = 1e-6  # keeps the denominators above zero, as published


@register(
    "polaformer",
    title="Polarity-aware linear attention (PolaFormer)",
    paper="Meng et al., PolaFormer: Polarity-aware Linear Attention for Vision Transformers, ICLR 2025",
    year=2025,
    family="linear attention",
    params="5*C**2 + C + (4*C if qkv_bias else 0) + (kernel**2 + 1)*(C//heads) + 2*C",
    macs="5*N*C**2 + kernel**2*N*C + 4*N*C*(C//heads) + 4*N*C + N*C + 4*B*C + C",
    complexity="n*C**2",
    public_code="ZacharyMeng/PolaFormer, MIT",
)
class PolarityAwareAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; C / `heads` is even.

    The powers of the features lie between 1 and 1 + `alpha`; `kernel` is the size of the depthwise convolution that all
    heads share.
    """

    def __init__(
        self, channels: int, *, heads: int = 8, alpha: int = 4, kernel: int = 5, qkv_bias: bool = True
    ) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, alpha=alpha, kernel=kernel)
        check_heads("polaformer", channels, heads)
        width = channels // heads
        if width % 2:
            raise ValueError(f"polaformer has {width} channels a head; it needs an even number")
        check_odd("polaformer", kernel=kernel)
        self.channels, self.heads, self.alpha = channels, heads, alpha
        self.query, self.key, self.value, self.gate = (
            nn.Conv2d(channels, channels, 1, bias=qkv_bias) for _ in range(4)
        )
        self.scale = nn.Parameter(torch.zeros(channels))
        self.power = nn.Parameter(torch.zeros(heads, width))
        self.detail = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.output = nn.Conv2d(channels, channels, 1)
        for layer in (self.query, self.key, self.value, self.gate, self.output):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "polaformer")
        value = self.value(x)
        # Powers up to 1 + alpha overflow in float16.
        wide = torch.promote_types(x.dtype, torch.float32)
        scale = functional.softplus(self.scale.to(wide))[:, None]
        power = (1 + self.alpha * torch.sigmoid(self.power.to(wide)))[:, :, None]  # [heads, C / heads, 1]
        query, key = (
            torch.unflatten(project(x).flatten(2).to(wide) / scale, 1, (self.heads, -1))
            for project in (self.query, self.key)
        )
        positive, negative = torch.relu(query) ** power, torch.relu(-query) ** power
        keys = torch.cat([torch.relu(key) ** power, torch.relu(-key) ** power], dim=2).flatten(0, 1)  # [G, 2c, n]
        halves = torch.unflatten(value.flatten(2).to(wide), 1, (self.heads, 2, -1)).flatten(0, 1).unbind(1)
        same = self._read(torch.cat([positive, negative], dim=2).flatten(0, 1), keys, halves[0])
        opposite = self._read(torch.cat([negative, positive], dim=2).flatten(0, 1), keys, halves[1])
        context = torch.cat([same, opposite], dim=1).to(x.dtype)  # [G, c, n]
        heads = torch.unflatten(value, 1, (self.heads, -1)).flatten(0, 1)  # [G, c, H, W]
        context = torch.unflatten(context, 2, x.shape[2:]) + self.detail(heads)
        out: Tensor = self.output(torch.unflatten(context, 0, (-1, self.heads)).flatten(1, 2) * self.gate(x))
        return out

    def _read(self, query: Tensor, keys: Tensor, value: Tensor) -> Tensor:
        """Linear attention of [G, 2c, n] queries and keys with values [G, c / 2, n]."""
        with without_autocast(query):
            memory = torch.bmm(keys, value.transpose(1, 2)) / value.size(2)  # [G, 2c, c / 2]
            weights = torch.bmm(keys.mean(2, keepdim=True).transpose(1, 2), query) + OFFSET
            return torch.bmm(memory.transpose(1, 2), query) / weights
