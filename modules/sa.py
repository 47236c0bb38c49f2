"""Self-attention over all positions as one non-local block: every pixel attends to every pixel, one head, no pooling.

Sources: Vaswani et al., Attention Is All You Need, NeurIPS 2017; Wang et al., Non-local Neural Networks, CVPR 2018.
No 1/sqrt(d) factor, a bias in every convolution, a residual.

The form decides the memory peak: the product is channel-first, values times the transposed affinity. Its gradient
reaches the softmax transposed, so a backward pass that copies it to be contiguous holds five n x n maps in training.
The affinity before the softmax is freed by the softmax: two maps in inference. `fused` is the same function through
PyTorch's fused kernel, which holds no n x n map and takes the channels of a position side by side.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register


@register(
    "sa",
    title="Self-attention (SA)",
    paper=(
        "Vaswani et al., Attention Is All You Need, NeurIPS 2017; as a block: "
        "Wang et al., Non-local Neural Networks, CVPR 2018"
    ),
    year=2017,
    family="attention",
    params="4*C*d + 3*d + C",
    macs="4*N*C*d + 2*B*n**2*d",
    complexity="n**2*d + n*C*d",
)
class SelfAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `d` is the width of queries, keys and values (None: C).

    `fused` takes `torch.nn.functional.scaled_dot_product_attention` in place of the two products and the softmax.
    """

    def __init__(self, channels: int, *, d: int | None = None, fused: bool = False) -> None:
        super().__init__()
        width = channels if d is None else d
        check_positive(channels=channels, d=width)
        self.channels, self.fused = channels, fused
        self.query = nn.Conv2d(channels, width, 1)
        self.key = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, width, 1)
        self.output = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "sa")
        query = self.query(x).flatten(2)  # [B, d, n]
        key = self.key(x).flatten(2)
        value = self.value(x).flatten(2)
        if self.fused:
            query, key, value = (t.transpose(1, 2).contiguous().unsqueeze(1) for t in (query, key, value))
            context = functional.scaled_dot_product_attention(query, key, value, scale=1.0).squeeze(1).transpose(1, 2)
        else:
            affinity = torch.softmax(torch.bmm(query.transpose(1, 2), key), dim=2)  # [B, n queries, n keys]
            context = torch.bmm(value, affinity.transpose(1, 2))  # [B, d, n]
        out: Tensor = x + self.output(torch.unflatten(context, 2, x.shape[2:]))
        return out

    def attention(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the logits of their softmax, both `[B, 1, n queries, n keys]`."""
        logits = torch.bmm(self.query(x).flatten(2).transpose(1, 2), self.key(x).flatten(2))[:, None]
        return torch.softmax(logits, dim=3), logits
