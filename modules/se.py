"""Squeeze and excitation: each channel is scaled by a number made from all channel means; positions do not mix.

Source: Hu et al., Squeeze-and-Excitation Networks, CVPR 2018. A control: what a block without position mixing costs.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, reduced
from ctxbench.registry import register


@register(
    "se",
    title="Squeeze and excitation (SE)",
    paper="Hu et al., Squeeze-and-Excitation Networks, CVPR 2018",
    year=2018,
    family="pooling",
    params="2*C*(C//reduction) + (C//reduction + C if bias else 0)",
    macs="2*B*C*(C//reduction) + B*C + N*C",
)
class SqueezeExcitation(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the bottleneck has C // `reduction` channels."""

    def __init__(self, channels: int, *, reduction: int = 16, bias: bool = True) -> None:
        super().__init__()
        width = reduced("se", channels, reduction)
        self.channels = channels
        self.squeeze = nn.Conv2d(channels, width, 1, bias=bias)
        self.excite = nn.Conv2d(width, channels, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "se")
        scale: Tensor = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return x * scale
