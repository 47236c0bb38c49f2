"""Magnitude-aware linear attention: a scale and an offset bring the length of the query back into linear attention.

Source: Fan et al., Rectifying Magnitude Neglect in Linear Attention, ICCV 2025; from its equations. Weights may be
negative. No residual and no norm; the scale is without rotation and takes the mean of the keys, as the authors' code
does. Half types take the attention in float32.
"""

import torch
from torch import Tensor

from ctxbench.registry import register

from ._gated_linear import OFFSET, GatedLinearAttention, rotated_memory


@register(
    "mala",
    title="Magnitude-aware linear attention (MALA)",
    paper="Fan et al., Rectifying Magnitude Neglect in Linear Attention, ICCV 2025",
    year=2025,
    family="linear attention",
    params="5*C**2 + 31*C",
    macs="5*N*C**2 + 25*N*C + 2*N*C*(C//heads) + N*C + 7*N*C + 2*B*C + (C//heads//4)*(H + W)",
    complexity="n*C**2",
    public_code="qhfan/MALA, no licence",
)
class MagnitudeAwareAttention(GatedLinearAttention):
    """[B, C, H, W] to [B, C, H, W]; C / `heads` is a multiple of 4."""

    name = "mala"

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        root = query.size(1) ** 0.5
        total = torch.bmm(key.mean(2, keepdim=True).transpose(1, 2), query) / root  # [G, 1, n]
        context = rotated_memory(query, key, value, cosine, sine) / root
        out: Tensor = context * (1 + (total + OFFSET).reciprocal()) - total * value.mean(2, keepdim=True)
        return out
