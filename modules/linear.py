"""Linear attention: softmax replaced by its first-order Taylor expansion, so that the cost is linear in the positions.

Source: Li et al., Linear Attention Mechanism: An Efficient Attention for Semantic Segmentation, arXiv:2007.14902, 2020.
Two faults of the public version are mended: inputs with H != W, and all-zero keys or queries (no contribution, where
the division by their length gave NaN).

The products with the inverse lengths and weights and the sum of the values are einsums, as published: torchprofile's
convention counts them, where it counts no division and no sum.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register

KEY_OFFSET = 1e-6  # added to the sum of the keys in the denominator, as published


def _inverse(x: Tensor) -> Tensor:
    """1/x, and 1 with gradient 0 where x is so small that x * x is no normal number."""
    smallest: float = torch.finfo(x.dtype).tiny ** 0.5
    return x.masked_fill(x.abs() <= smallest, 1.0).reciprocal()


def _unit(x: Tensor) -> Tensor:
    """Each vector along dimension 1 of [B, c, n] divided by its length; a zero vector stays zero."""
    return torch.einsum("bcn,bn->bcn", x, _inverse(torch.linalg.vector_norm(x, dim=1)))


@register(
    "linear",
    title="Linear attention",
    paper="Li et al., Linear Attention Mechanism: An Efficient Attention for Semantic Segmentation, arXiv:2007.14902",
    year=2020,
    family="linear attention",
    params="C**2 + C + 2*(C + 1)*(C//reduction) + 1",
    macs="N*(C**2 + 2*C*(C//reduction)) + 2*N*C*(C//reduction) + 3*N*(C//reduction) + 3*N*C",
    complexity="n*C**2",
    public_code="lironui/Linear-Attention-Mechanism, no licence",
)
class LinearAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; queries and keys have `C // reduction` channels. The identity at initialisation."""

    def __init__(self, channels: int, *, reduction: int = 8) -> None:
        super().__init__()
        check_positive(channels=channels, reduction=reduction)
        if channels < reduction:
            raise ValueError(f"channels is {channels}; linear needs at least reduction ({reduction}) channels")
        self.channels = channels
        self.query = nn.Conv2d(channels, channels // reduction, 1)
        self.key = nn.Conv2d(channels, channels // reduction, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "linear")
        query = _unit(self.query(x).flatten(2))  # [B, c, n], c = C // reduction
        key = _unit(self.key(x).flatten(2))
        value = self.value(x).flatten(2)  # [B, C, n]
        weights = torch.einsum("bcn,bc->bn", query, key.sum(dim=2) + KEY_OFFSET) + x.shape[2:].numel()
        descriptors = torch.bmm(value, key.transpose(1, 2))  # [B, C, c]
        context = torch.einsum("bcn->bc", value).unsqueeze(2) + torch.bmm(descriptors, query)
        context = torch.einsum("bcn,bn->bcn", context, _inverse(weights))
        out: Tensor = x + self.scale * torch.unflatten(context, 2, x.shape[2:])
        return out

    def attention(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights (1 + q^T k) / sum, and q^T k, whose softmax they expand; `[B, 1, n queries, n keys]`."""
        query = _unit(self.query(x).flatten(2))
        key = _unit(self.key(x).flatten(2))
        logits = torch.bmm(query.transpose(1, 2), key)[:, None]
        total = torch.bmm(query.transpose(1, 2), key.sum(dim=2, keepdim=True) + KEY_OFFSET)[:, None] + key.shape[2]
        return (1 + logits) / total, logits
