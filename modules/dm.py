"""Dynamic multi-scale filters: depthwise filters of four sizes, made from the image's own pooled content.

Source: He et al., Dynamic Multi-scale Filters for Semantic Segmentation, ICCV 2019. No batch normalisation in the
branches, a bias in the filter generators alone, a ReLU at the end of a branch alone; the four outputs are concatenated
without the input.

The form decides the memory peak: the zero padding is given to the depthwise convolution (no padded copy), the batch is
folded into its groups, and the ReLU runs in place.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._onnx import pooled
from ctxbench.registry import register

from ._pyramid import Pyramid


class DynamicFilterBranch(nn.Module):
    """[B, C, H, W] to [B, d, H, W] with one `size` x `size` filter for each image and channel."""

    def __init__(self, channels: int, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.filters = nn.Conv2d(channels, width, 1)
        self.features = nn.Conv2d(channels, width, 1, bias=False)
        self.output = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        filters = self.filters(pooled(x, self.size)).flatten(0, 1).unsqueeze(1)  # [B * d, 1, k, k]
        features = self.features(x)
        folded = features.flatten(0, 1).unsqueeze(0)  # [1, B * d, H, W]
        filtered = functional.conv2d(folded, filters, padding=self.size // 2, groups=folded.shape[1])
        return torch.relu_(self.output(torch.unflatten(filtered.squeeze(0), 0, features.shape[:2])))


@register(
    "dm",
    title="Dynamic multi-scale filters (DM)",
    paper="He et al., Dynamic Multi-scale Filters for Semantic Segmentation, ICCV 2019",
    year=2019,
    family="pyramid",
    params="8*C*d + 4*d**2 + 4*d + (4*d*C + 2*C if bottleneck else 0)",
    macs="4*N*C*d + 4*N*d**2 + 84*B*C*d + 84*N*d + 84*B*C + (N*(4*d*C + C) if bottleneck else 0)",
    out_channels="C if bottleneck else 4*d",
    complexity="n*C**2",
    public_code="mmsegmentation's DCM, Apache-2.0",
)
class DynamicMultiScale(Pyramid):
    """[B, C, H, W] to [B, 4*d, H, W], or with `bottleneck` to [B, C, H, W]; `d` is the width of a branch (None: C).

    The bottleneck is a 1x1 convolution over the concatenation, batch normalisation and ReLU.
    """

    name = "dm"
    branch = DynamicFilterBranch
    sizes = (1, 3, 5, 7)  # 84 filter taps in all: 1 + 9 + 25 + 49
