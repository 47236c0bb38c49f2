"""Deformable convolution v2: a window whose taps the input moves and weighs, before one product over taps and channels.

Source: Zhu, Hu, Lin, Dai, Deformable ConvNets v2: More Deformable, Better Results, CVPR 2019, with stride 1 and one
group of weights. At the start of training no tap is moved, and each weighs one half.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.registry import register

from ._deform import gathered, tap_places, widened


@register(
    "dcnv2",
    title="Deformable convolution v2",
    paper="Zhu et al., Deformable ConvNets v2: More Deformable, Better Results, CVPR 2019",
    year=2019,
    family="sparse attention",
    params="kernel_size**2*C**2 + C + 3*deform_groups*kernel_size**2*(kernel_size**2*C + 1)",
    macs="N*kernel_size**2*(C**2 + 3*deform_groups*kernel_size**2*C + 5*C + 2*deform_groups) + 2*kernel_size**2",
    complexity="n*C**2*kernel_size**2",
    position_mixing=False,
    reach="by content",
    public_code="open-mmlab/mmcv, Apache-2.0",
)
class DeformableConvolution2(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; a window of `kernel_size` squared, odd, for each of `deform_groups` of channels."""

    taps: Tensor

    def __init__(self, channels: int, *, kernel_size: int = 3, dilation: int = 1, deform_groups: int = 1) -> None:
        super().__init__()
        check_positive(channels=channels, kernel_size=kernel_size, dilation=dilation, deform_groups=deform_groups)
        check_odd("dcnv2", kernel_size=kernel_size)
        if channels % deform_groups:
            raise ValueError(f"channels is {channels}; dcnv2 needs a multiple of deform_groups ({deform_groups})")
        self.channels, self.groups = channels, deform_groups
        self.register_buffer("taps", tap_places(kernel_size, dilation), persistent=False)
        bound = 1 / math.sqrt(channels * kernel_size**2)
        self.weight = nn.Parameter(torch.empty(channels, channels, kernel_size, kernel_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels))
        around = dilation * (kernel_size // 2)
        moves = 3 * deform_groups * kernel_size**2
        self.conv_offset = nn.Conv2d(channels, moves, kernel_size, padding=around, dilation=dilation)
        for part in self.conv_offset.parameters():
            nn.init.zeros_(part)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "dcnv2")
        made = widened(self.conv_offset, x).flatten(2)  # [B, 3 g K, n]
        moved, weighed = made.split((2 * self.groups * len(self.taps), self.groups * len(self.taps)), dim=1)
        offsets = moved.reshape(-1, len(self.taps), 2, moved.size(2)).flip(2)  # (y, x) to (x, y)
        masks = torch.sigmoid(weighed).reshape(-1, len(self.taps), weighed.size(2))
        read = gathered(x.reshape(-1, self.channels // self.groups, *x.shape[2:]), offsets, self.taps)
        columns = (read * masks[:, None]).reshape(x.size(0), -1, *x.shape[2:]).to(x.dtype)  # [B, C K, H, W]
        return functional.conv2d(columns, self.weight.flatten(1)[:, :, None, None], self.bias)
