"""Efficient channel attention: each channel is scaled by a number made from the means of the channels beside it.

Source: Wang et al., ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks, CVPR 2020. The width
of the convolution over the channels grows with the logarithm of their number, as in the paper; it is 3 at least.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.registry import register


@register(
    "eca",
    title="Efficient channel attention (ECA)",
    paper="Wang et al., ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks, CVPR 2020",
    year=2020,
    family="pooling",
    params="kernel_size if kernel_size > 0 else 3 if C < 128 else 5 if C < 2048 else 7",
    macs="B*C*(kernel_size if kernel_size > 0 else 3 if C < 128 else 5 if C < 2048 else 7) + B*C + N*C",
    complexity="n*C",
    position_mixing=False,
    public_code="BangguWu/ECANet, MIT",
)
class EfficientChannelAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W], C below 32768; each scale is made from `kernel_size` means, odd, or 0: by C."""

    def __init__(self, channels: int, *, kernel_size: int = 0) -> None:
        super().__init__()
        check_positive(channels=channels)
        # The odd number that is nearest to (log2(C) + 1) / 2, the larger one of two.
        kernel_size = kernel_size or max(3, channels.bit_length() // 2 | 1)
        check_positive(kernel_size=kernel_size)
        check_odd("eca", kernel_size=kernel_size)
        self.channels = channels
        self.conv = nn.Conv1d(1, 1, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "eca")
        scale = torch.sigmoid(self.conv(x.mean((2, 3)).unsqueeze(1)))  # [B, 1, C]
        return x * scale.transpose(1, 2).unsqueeze(3)
