"""Rank-augmented linear attention: keys are weighed by how much the mean query asks for them, and the output is gated.

Source: Fan et al., Breaking the Low-Rank Dilemma of Linear Attention, CVPR 2025; from its equations. No residual and no
norm; the denominator is without rotation. As published; half types take the attention in float32.
"""

import torch
from torch import Tensor

from ctxbench.registry import register

from ._gated_linear import OFFSET, GatedLinearAttention, rotated_memory


@register(
    "rala",
    title="Rank-augmented linear attention (RALA)",
    paper="Fan et al., Breaking the Low-Rank Dilemma of Linear Attention, CVPR 2025",
    year=2025,
    family="linear attention",
    params="5*C**2 + 31*C",
    macs="5*N*C**2 + 25*N*C + 2*N*C*(C//heads) + 2*N*C + 7*N*C + N*heads + 2*B*C + (C//heads//4)*(H + W)",
    complexity="n*C**2",
    public_code="qhfan/RALA, no licence",
)
class RankAugmentedAttention(GatedLinearAttention):
    """[B, C, H, W] to [B, C, H, W]; C / `heads` is a multiple of 4."""

    name = "rala"

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        asked = torch.bmm(query.mean(2, keepdim=True).transpose(1, 2), key) / query.size(1) ** 0.5  # [G, 1, n]
        key = key * (torch.softmax(asked, dim=2) * key.size(2))
        weights = torch.bmm(key.mean(2, keepdim=True).transpose(1, 2), query) + OFFSET
        return rotated_memory(query, key, value, cosine, sine) * weights.reciprocal()
