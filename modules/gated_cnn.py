"""Gated convolution: a part of the channels passes a depthwise convolution, then all are multiplied by a gate; local.

Source: Yu and Wang, MambaOut: Do We Really Need Mamba for Vision?, CVPR 2025: a block of Mamba without its scan, so
the baseline of blocks with one. Without the norm before it and the residual around it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise, start_small
from ctxbench.registry import register


@register(
    "gated_cnn",
    title="Gated CNN (MambaOut)",
    paper="Yu and Wang, MambaOut: Do We Really Need Mamba for Vision?, CVPR 2025",
    year=2025,
    family="large kernel",
    params=(
        "3*ceil(expansion_ratio*C//1)*C + 2*ceil(expansion_ratio*C//1) + (kernel_size**2 + 1)*ceil(conv_ratio*C//1) + C"
    ),
    macs="N*(ceil(expansion_ratio*C//1)*(3*C + 1) + kernel_size**2*ceil(conv_ratio*C//1))",
    complexity="n*C**2",
    position_mixing=False,
    reach="min(H, kernel_size)*min(W, kernel_size)",
    public_code="yuweihao/MambaOut, Apache-2.0",
)
class GatedConvolution(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `expansion_ratio` * C inner channels, rounded down.

    The convolution is `kernel_size` x `kernel_size`, odd, over the last `conv_ratio` * C of the inner channels.
    """

    def __init__(
        self,
        channels: int,
        *,
        expansion_ratio: float = 2.6666666666666665,  # 8 / 3
        kernel_size: int = 7,
        conv_ratio: float = 1.0,
    ) -> None:
        super().__init__()
        inner, seen = int(expansion_ratio * channels), int(conv_ratio * channels)
        check_positive(channels=channels, kernel_size=kernel_size, inner_channels=inner, convolved_channels=seen)
        check_odd("gated_cnn", kernel_size=kernel_size)
        if seen > inner:
            raise ValueError(f"gated_cnn has {inner} inner channels; conv_ratio asks to convolve {seen} of them")
        self.channels, self.widths = channels, (inner, inner - seen, seen)
        self.fc1 = ChannelLinear(channels, 2 * inner)
        self.conv = depthwise(seen, kernel_size)
        self.fc2 = ChannelLinear(inner, channels)
        start_small(self.fc1, self.conv, self.fc2)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "gated_cnn")
        gate, kept, seen = self.fc1(x).split(self.widths, dim=1)
        out: Tensor = self.fc2(functional.gelu(gate) * torch.cat((kept, self.conv(seen)), dim=1))
        return out
