"""Atrous spatial pyramid pooling: dilated 3x3 convolutions at three rates beside a 1x1 one and the global mean.

Source: Chen et al., Rethinking Atrous Convolution for Semantic Image Segmentation (DeepLabv3), arXiv:1706.05587, 2017.
No residual. Only the mean is global.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._norm import conv_norm_relu
from ctxbench.registry import register


@register(
    "aspp",
    title="Atrous spatial pyramid pooling (ASPP)",
    paper="Chen et al., Rethinking Atrous Convolution for Semantic Image Segmentation, arXiv:1706.05587, 2017",
    year=2017,
    family="pyramid",
    params="29*C*width + 5*width**2 + 12*width",
    macs="28*N*C*width + B*C*width + 5*N*width**2 + 5*N*width + B*width + B*C",
    out_channels="width",
)
class AtrousPyramid(nn.Module):
    """[B, C, H, W] to [B, `width`, H, W]; the dilations are 1, 2 and 3 times `rate`."""

    def __init__(self, channels: int, *, width: int = 256, rate: int = 12) -> None:
        super().__init__()
        check_positive(channels=channels, width=width, rate=rate)
        self.channels = channels
        self.point = conv_norm_relu(channels, width)
        self.windows = nn.ModuleList(conv_norm_relu(channels, width, 3, times * rate) for times in (1, 2, 3))
        self.image = conv_norm_relu(channels, width)
        self.output = conv_norm_relu(5 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "aspp")
        image = self.image(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[2:])
        out: Tensor = self.output(torch.cat([self.point(x), *(window(x) for window in self.windows), image], dim=1))
        return out
