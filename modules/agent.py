"""Agent attention: a few agents, pooled queries, gather from all positions and give to all positions.

Source: Han et al., Agent Attention: On the Integration of Softmax and Linear Attention, ECCV 2024; from its equations.
Without the learned tables of positions, which tie the public version to one square size: this is the published
attention without its position information.

Fused attention would need the channels of a position side by side in
memory; to copy the maps for it takes longer than these products, whose affinities are small.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_heads, check_input, check_positive
from ctxbench.modules._onnx import pooled
from ctxbench.registry import register


@register(
    "agent",
    title="Agent attention",
    paper="Han et al., Agent Attention: On the Integration of Softmax and Linear Attention, ECCV 2024",
    year=2024,
    family="sparse attention",
    params="4*C**2 + 11*C + (3*C if qkv_bias else 0)",
    macs="4*N*C**2 + 9*N*C + 4*N*pool**2*C + 2*B*pool**2*C",
    complexity="n*pool**2*C + n*C**2",
    public_code="LeapLabTHU/Agent-Attention, no licence",
)
class AgentAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `heads` heads and `pool` x `pool` agents."""

    def __init__(self, channels: int, *, heads: int = 8, pool: int = 7, qkv_bias: bool = True) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, pool=pool)
        check_heads("agent", channels, heads)
        self.channels, self.heads, self.pool = channels, heads, pool
        self.query, self.key, self.value = (nn.Conv2d(channels, channels, 1, bias=qkv_bias) for _ in range(3))
        self.detail = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.output = nn.Conv2d(channels, channels, 1)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "agent")
        image, value_image = self.query(x), self.value(x)
        query, key, value = self._split(image), self._split(self.key(x)), self._split(value_image)
        agents = self._split(pooled(image, self.pool)) * query.shape[2] ** -0.5
        agents = agents.transpose(2, 3)  # [B, heads, agents, C / heads]
        gathered = torch.matmul(torch.softmax(torch.matmul(agents, key), dim=3), value.transpose(2, 3))
        shares = torch.softmax(torch.matmul(agents, query), dim=2)  # [B, heads, agents, n]
        context = torch.matmul(gathered.transpose(2, 3), shares).flatten(1, 2)
        out: Tensor = self.output(torch.unflatten(context, 2, x.shape[2:]) + self.detail(value_image))
        return out

    def _split(self, image: Tensor) -> Tensor:
        """[B, C, H, W] to [B, heads, C / heads, n]."""
        return torch.unflatten(image.flatten(2), 1, (self.heads, -1))
