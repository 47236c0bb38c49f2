"""Co-occurrent features in their attention form: every pixel attends to an average-pooled quarter of the positions.

Source: Zhang et al., Co-occurrent Features in Semantic Segmentation, CVPR 2019. One head, one mixture component;
queries and keys share a projection; keys and values are computed from 3x3, stride-2 average pooling whose border is
not counted.

The form decides the memory peak: the product is channel-first, values times the transposed affinity, and the affinity
before the softmax stays referenced until the forward pass ends, so its n x n/4 map counts beside the softmax's in
inference (627 MiB at [1, 512, 128, 128]). Only in this form the published figure is reached.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import gradient_in_order
from ctxbench.registry import register


def _pool(x: Tensor) -> Tensor:
    """Average 3x3 windows at stride 2, the border not counted: [B, C, ceil(H/2), ceil(W/2)]."""
    return functional.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)


@register(
    "acf",
    title="Aggregated co-occurrent features (ACF)",
    paper="Zhang et al., Co-occurrent Features in Semantic Segmentation, CVPR 2019",
    year=2019,
    family="sparse attention",
    params="3*C*d + 2*d + (2*C if batch_norm else 0)",
    macs=("2*N*C*d + 2*B*((H + 1)//2)*((W + 1)//2)*(C*d + n*d + C) + (N*C if batch_norm else 0)"),
    complexity="n**2*d + n*C*d",
    public_code="zhanghang1989/PyTorch-Encoding, MIT",
)
class CoOccurrentFeature(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `d` is the width of queries, keys and values (None: C).

    `batch_norm` puts batch normalisation behind the output convolution; the published figures are without it.
    """

    def __init__(self, channels: int, *, d: int | None = None, batch_norm: bool = False) -> None:
        super().__init__()
        width = channels if d is None else d
        check_positive(channels=channels, d=width)
        self.channels = channels
        self.query_key = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, width, 1)
        self.output = nn.Conv2d(width, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels) if batch_norm else nn.Identity()
        self.temperature = width**0.5

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "acf")
        query = self.query_key(x).flatten(2)  # [B, d, n]
        key = self.query_key(_pool(x)).flatten(2)  # [B, d, m], m = ceil(H/2) * ceil(W/2)
        value = self.value(_pool(x)).flatten(2)
        raw = torch.bmm(query.transpose(1, 2), key) / self.temperature  # [B, n, m]; named, so it lives to the end
        affinity = torch.softmax(raw, dim=2)
        context = torch.unflatten(torch.bmm(value, affinity.transpose(1, 2)), 2, x.shape[2:])
        context = gradient_in_order(self.norm(self.output(context)))
        out: Tensor = x + context
        return out
