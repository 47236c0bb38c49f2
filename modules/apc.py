"""Adaptive context: at four pyramid scales, every pixel weighs the s x s pooled regions by its own affinity.

Source: He et al., Adaptive Pyramid Context Network for Semantic Segmentation, CVPR 2019. No batch normalisation in the
branches; the four outputs are concatenated without the input. The product of regions and affinity is a batched matrix
product.

The form decides the memory peak: both ReLUs run in place, and the pooled regions are computed after the affinity.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._onnx import pooled
from ctxbench.registry import register

from ._pyramid import Pyramid


class AdaptiveContextBranch(nn.Module):
    """[B, C, H, W] to [B, d, H, W] with `scale` x `scale` regions."""

    def __init__(self, channels: int, width: int, scale: int) -> None:
        super().__init__()
        self.features = nn.Conv2d(channels, width, 1)
        self.affinity = nn.Conv2d(width, scale * scale, 1)
        self.scale = scale
        self.regions = nn.Conv2d(channels, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(x)
        features = torch.relu_(features + features.mean(dim=(2, 3), keepdim=True))  # [B, d, H, W]
        affinity = torch.sigmoid(self.affinity(features)).flatten(2)  # [B, s * s, n]
        regions = self.regions(pooled(x, self.scale)).flatten(2)  # [B, d, s * s]
        context = torch.unflatten(torch.bmm(regions, affinity), 2, x.shape[2:])
        return torch.relu_(context + features)


@register(
    "apc",
    title="Adaptive pyramid context (APC)",
    paper="He et al., Adaptive Pyramid Context Network for Semantic Segmentation, CVPR 2019",
    year=2019,
    family="pyramid",
    params="4*(2*C*d + 2*d) + 50*(d + 1) + (4*d*C + 2*C if bottleneck else 0)",
    macs="4*N*C*d + 50*B*C*d + 100*N*d + 50*B*C + 4*B*d + (N*(4*d*C + C) if bottleneck else 0)",
    out_channels="C if bottleneck else 4*d",
    complexity="n*C**2",
    public_code="mmsegmentation's ACM, Apache-2.0",
)
class AdaptiveContext(Pyramid):
    """[B, C, H, W] to [B, 4*d, H, W], or with `bottleneck` to [B, C, H, W]; `d` is the width of a branch (None: C).

    The bottleneck is a 1x1 convolution over the concatenation, batch normalisation and ReLU.
    """

    name = "apc"
    branch = AdaptiveContextBranch
    sizes = (1, 2, 3, 6)  # 50 regions in all: 1 + 4 + 9 + 36
