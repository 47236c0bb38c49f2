"""External attention: positions attend to a small memory that all inputs share.

Source: Guo et al., Beyond Self-attention: External Attention using Two Linear Layers for Visual Tasks,
arXiv:2105.02358, 2021; from its equations. A softmax over the positions, then each position divided by its sum over
the memory. Half types take both in float32: the public version gives NaN there.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register

OFFSET = 1e-9  # keeps the second normalisation above zero, as published


@register(
    "external",
    title="External attention (EA)",
    paper="Guo et al., Beyond Self-attention: External Attention using Two Linear Layers, arXiv:2105.02358, 2021",
    year=2021,
    family="linear attention",
    params="2*C**2 + 3*C + 2*C*memory",
    macs="2*N*C**2 + 2*N*C*memory + N*C",
    complexity="n*memory*C + n*C**2",
    public_code="MenghaoGuo/EANet, no licence",
)
class ExternalAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `memory` memory vectors."""

    def __init__(self, channels: int, *, memory: int = 64) -> None:
        super().__init__()
        check_positive(channels=channels, memory=memory)
        self.channels = channels
        self.input = nn.Conv2d(channels, channels, 1)
        self.keys = nn.Parameter(torch.randn(memory, channels) * (2 / channels) ** 0.5)
        self.values = nn.Parameter(self.keys.detach().t().clone())
        self.output = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        for layer in (self.input, self.output):
            nn.init.normal_(layer.weight, std=(2 / channels) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "external")
        context = torch.bmm(self.values.expand(x.size(0), -1, -1), self._weights(x))
        y = self.norm(self.output(torch.unflatten(context, 2, x.shape[2:]))) + x
        return functional.relu(y, inplace=True)

    def _weights(self, x: Tensor) -> Tensor:
        """Attention weight of each position on each memory vector: [B, S, n]."""
        features = self.input(x).flatten(2)  # [B, C, n]
        wide = torch.promote_types(x.dtype, torch.float32)  # float16 holds neither 1e-9 nor the softmax's small weights
        logits = torch.bmm(self.keys.expand(x.size(0), -1, -1), features)  # [B, S, n]
        weights = torch.softmax(logits, dim=2, dtype=wide)
        return (weights / (OFFSET + weights.sum(1, keepdim=True))).to(x.dtype)
