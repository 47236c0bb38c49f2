"""Global context: one attention map pools the positions, and a bottleneck adds the result to every position.

Source: Cao et al., GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond, ICCV Workshops 2019.
"""

import torch
from torch import Tensor, nn

from ctxbench import register


@register(
    "global_context",
    title="Global context (GC)",
    paper="Cao et al., GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond, ICCV Workshops 2019",
    year=2019,
    family="attention",
    params="C + 1 + 2*C*(C//reduction) + 3*(C//reduction) + C",
    macs="2*N*C + 2*B*C*(C//reduction) + B*(C//reduction)",
)
class GlobalContext(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the bottleneck has `C // reduction` channels."""

    def __init__(self, channels: int, *, reduction: int = 16) -> None:
        super().__init__()
        if channels < reduction:
            raise ValueError(f"channels is {channels}; global_context needs at least reduction ({reduction}) channels")
        width = channels // reduction
        self.attention = nn.Conv2d(channels, 1, 1)
        self.narrow = nn.Conv2d(channels, width, 1)
        self.norm = nn.LayerNorm([width, 1, 1])
        self.widen = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.attention(x).flatten(2).softmax(dim=2)  # [B, 1, n]
        context = torch.bmm(x.flatten(2), weights.transpose(1, 2)).unsqueeze(3)  # [B, C, 1, 1]
        return x + self.widen(torch.relu(self.norm(self.narrow(context))))
