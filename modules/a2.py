"""Double attention: gather a few global descriptors by one attention, hand them to every position by a second.

Source: Chen et al., A2-Nets: Double Attention Networks, NeurIPS 2018. Every 1x1 convolution has a bias and is followed
by batch normalisation, the output included; a residual.

The form decides the memory peak: the gathering attention map is freed as soon as the descriptors exist, the features
and the distribution map stay to the end of the forward pass (five C x n maps in inference).
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import gradient_in_order
from ctxbench.registry import register


def _projection(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width))


@register(
    "a2",
    title="Double attention (A2)",
    paper="Chen et al., A2-Nets: Double Attention Networks, NeurIPS 2018",
    year=2018,
    family="linear attention",
    params="2*C*(c_m + c_n) + 3*(c_m + 2*c_n + C)",
    macs="2*N*C*(c_m + c_n) + 2*N*c_m*c_n + N*(c_m + 2*c_n + C)",
    complexity="n*c_m*c_n + n*C*(c_m + c_n)",
)
class DoubleAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `c_m` is the width of the features, `c_n` the number of descriptors (None: C)."""

    def __init__(self, channels: int, *, c_m: int | None = None, c_n: int | None = None) -> None:
        super().__init__()
        width = channels if c_m is None else c_m
        descriptors = channels if c_n is None else c_n
        check_positive(channels=channels, c_m=width, c_n=descriptors)
        self.channels = channels
        self.features = _projection(channels, width)
        self.gathering = _projection(channels, descriptors)
        self.distribution = _projection(channels, descriptors)
        self.output = _projection(width, channels)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "a2")
        features = self.features(x).flatten(2)  # [B, c_m, n]
        gathering = torch.softmax(self.gathering(x).flatten(2), dim=2)  # [B, c_n, n], over the positions
        descriptors = torch.bmm(features, gathering.transpose(1, 2))  # [B, c_m, c_n]
        del gathering  # in inference its memory serves the output projection
        distribution = torch.softmax(self.distribution(x).flatten(2), dim=1)  # [B, c_n, n], over the descriptors
        context = torch.unflatten(torch.bmm(descriptors, distribution), 2, x.shape[2:])  # [B, c_m, H, W]
        out: Tensor = x + gradient_in_order(self.output(context))
        return out
