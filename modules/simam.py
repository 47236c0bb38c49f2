"""SimAM: each value is scaled by how far it is from the mean of its channel, in units of the channel's variance.

Source: Yang et al., SimAM: A Simple, Parameter-Free Attention Module for Convolutional Neural Networks, ICML 2021;
from its equations. At one position, where the variance is 0 / 0, the divisor is 1. Half types take mean and variance
in float32: squares leave the range of float16 at 256.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.registry import register


@register(
    "simam",
    title="SimAM",
    paper="Yang et al., SimAM: A Simple, Parameter-Free Attention Module for Convolutional Neural Networks, ICML 2021",
    year=2021,
    family="pooling",
    params="0",
    macs="N*C + 2*B*C",
    complexity="n*C",
    public_code="ZjjConan/SimAM, no licence",
)
class SimAM(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `e_lambda` is added to the variance."""

    def __init__(self, channels: int, *, e_lambda: float = 1e-4) -> None:
        super().__init__()
        check_positive(channels=channels)
        if e_lambda <= 0:
            raise ValueError(f"e_lambda is {e_lambda}; it must be above 0")
        self.channels, self.e_lambda = channels, e_lambda

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "simam")
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        squares = (values - values.mean((2, 3), keepdim=True)).pow(2)
        variance = squares.sum((2, 3), keepdim=True) / max(x.size(2) * x.size(3) - 1, 1)
        weights = torch.sigmoid(squares / (4 * (variance + self.e_lambda)) + 0.5)
        return x * weights.to(x.dtype)
