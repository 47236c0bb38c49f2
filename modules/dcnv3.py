"""Deformable convolution of InternImage: groups of channels read a window, whose taps they move and weigh.

Source: Wang et al., InternImage: Exploring Large-Scale Vision Foundation Models with Deformable Convolutions, CVPR
2023. As published, with stride 1 and without the scale of the centre's feature. At the start of training no tap is
moved, and all weigh the same.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise, start_xavier
from ctxbench.registry import register

from ._deform import taps_by_column, weighed, widened


class Tokens(nn.Module):
    """[B, C, H, W] to [B, n, C]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


@register(
    "dcnv3",
    title="Deformable convolution v3 (InternImage)",
    paper="Wang et al., InternImage: Exploring Large-Scale Vision Foundation Models with Deformable Convolutions, "
    "CVPR 2023",
    year=2023,
    family="sparse attention",
    params="2*C**2 + 2*C + ((dw_kernel_size if dw_kernel_size > 0 else kernel_size)**2 + 3)*C"
    " + 3*(C//group_width)*(kernel_size**2 - (1 if remove_center else 0))*(C + 1)",
    macs="N*(2*C**2 + (dw_kernel_size if dw_kernel_size > 0 else kernel_size)**2*C + C"
    " + (kernel_size**2 - (1 if remove_center else 0))*(3*(C//group_width)*C + 5*C + 2*(C//group_width)))"
    " + 2*(kernel_size**2 - (1 if remove_center else 0))",
    complexity="n*C**2 + n*C**2/group_width*kernel_size**2",
    position_mixing=False,
    reach="by content",
    public_code="OpenGVLab/InternImage, MIT",
)
class DeformableConvolution3(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; groups of `group_width` channels, windows of `kernel_size` squared, odd.

    `offset_scale` multiplies taps and offsets. These come from a depthwise convolution of `dw_kernel_size`, odd, or 0:
    as the window. `remove_center`: the window has no tap in its centre.
    """

    taps: Tensor

    def __init__(
        self,
        channels: int,
        *,
        group_width: int = 16,
        kernel_size: int = 3,
        dilation: int = 1,
        offset_scale: float = 1.0,
        dw_kernel_size: int = 0,
        remove_center: bool = False,
    ) -> None:
        super().__init__()
        taps = taps_by_column("dcnv3", channels, group_width, kernel_size, dilation, remove_center)
        around = dw_kernel_size or kernel_size
        check_positive(dw_kernel_size=around)
        check_odd("dcnv3", dw_kernel_size=around)
        self.channels, self.groups, self.offset_scale = channels, channels // group_width, offset_scale
        self.register_buffer("taps", taps, persistent=False)
        norm = nn.Sequential(Tokens(), nn.LayerNorm(channels, eps=1e-6))
        self.dw_conv = nn.Sequential(depthwise(channels, around), norm, nn.GELU())
        self.offset = nn.Linear(channels, 2 * self.groups * len(taps))
        self.mask = nn.Linear(channels, self.groups * len(taps))
        self.input_proj, self.output_proj = ChannelLinear(channels, channels), ChannelLinear(channels, channels)
        start_xavier(self.input_proj, self.output_proj)
        for part in (*self.offset.parameters(), *self.mask.parameters()):
            nn.init.zeros_(part)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "dcnv3")
        features = self.dw_conv(x)  # [B, n, C]
        moved, masks = (self._by_group(widened(layer, features)) for layer in (self.offset, self.mask))
        masks = torch.softmax(masks, dim=1)
        y: Tensor = self.output_proj(weighed(self.input_proj(x), moved, masks, self.taps, self.offset_scale))
        return y

    def _by_group(self, made: Tensor) -> Tensor:
        """[B, n, g m] to [B g, m, n]."""
        return torch.unflatten(made.transpose(1, 2), 1, (self.groups, -1)).flatten(0, 1)
