"""Self-attention over all positions as one non-local block: every pixel attends to every pixel, one head, no pooling.

Sources: Vaswani et al., Attention Is All You Need, NeurIPS 2017; Wang et al., Non-local Neural Networks, CVPR 2018.
No 1/sqrt(d) factor, a bias in every convolution, a residual.

The form decides the memory peak: the product is channel-first, values times the transposed affinity. Its gradient
reaches the softmax transposed, so a backward pass that copies it to be contiguous holds five n x n maps in training.
The affinity before the softmax is freed by the softmax: two maps in inference.
"""

import torch
from torch import Tensor, nn

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
)
class SelfAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `d` is the width of queries, keys and values (None: C)."""

    def __init__(self, channels: int, *, d: int | None = None) -> None:
        super().__init__()
        width = channels if d is None else d
        check_positive(channels=channels, d=width)
        self.channels = channels
        self.query = nn.Conv2d(channels, width, 1)
        self.key = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, width, 1)
        self.output = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "sa")
        query = self.query(x).flatten(2)  # [B, d, n]
        key = self.key(x).flatten(2)
        value = self.value(x).flatten(2)
        affinity = torch.softmax(torch.bmm(query.transpose(1, 2), key), dim=2)  # [B, n queries, n keys]
        context = torch.bmm(value, affinity.transpose(1, 2))  # [B, d, n]
        out: Tensor = x + self.output(torch.unflatten(context, 2, x.shape[2:]))
        return out
