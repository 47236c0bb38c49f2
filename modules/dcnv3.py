"""Deformable convolution of InternImage: groups of channels read a window, whose taps they move and weigh.

Source: Wang et al., InternImage: Exploring Large-Scale Vision Foundation Models with Deformable Convolutions, CVPR
2023. As published, with stride 1 and without the scale of the centre's feature. At the start of training no tap is
moved, and all weigh the same.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise
from ctxbench.registry import register

from ._deform import gathered, tap_places, widened


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
        around = dw_kernel_size or kernel_size
        check_positive(channels=channels, group_width=group_width, kernel_size=kernel_size, dilation=dilation)
        check_positive(dw_kernel_size=around)
        check_odd("dcnv3", kernel_size=kernel_size, dw_kernel_size=around)
        if channels % group_width:
            raise ValueError(f"channels is {channels}; dcnv3 needs a multiple of group_width ({group_width})")
        if remove_center and kernel_size == 1:
            raise ValueError("kernel_size is 1; with remove_center it must be at least 3")
        self.channels, self.groups, self.offset_scale = channels, channels // group_width, offset_scale
        taps = tap_places(kernel_size, dilation).flip(1)  # column by column
        if remove_center:
            taps = taps[(taps != 0).any(1)]
        self.register_buffer("taps", taps, persistent=False)
        norm = nn.Sequential(Tokens(), nn.LayerNorm(channels, eps=1e-6))
        self.dw_conv = nn.Sequential(depthwise(channels, around), norm, nn.GELU())
        self.offset = nn.Linear(channels, 2 * self.groups * len(taps))
        self.mask = nn.Linear(channels, self.groups * len(taps))
        self.input_proj, self.output_proj = ChannelLinear(channels, channels), ChannelLinear(channels, channels)
        for layer in (self.input_proj, self.output_proj):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        for part in (*self.offset.parameters(), *self.mask.parameters()):
            nn.init.zeros_(part)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "dcnv3")
        features = self.dw_conv(x)  # [B, n, C]
        offsets, masks = (self._by_group(widened(layer, features)) for layer in (self.offset, self.mask))
        masks = torch.softmax(masks, dim=1)
        value = self.input_proj(x).reshape(-1, self.channels // self.groups, *x.shape[2:])
        read = gathered(value, torch.unflatten(offsets, 1, (-1, 2)), self.taps, self.offset_scale)
        context = (read * masks[:, None]).sum(2).reshape(x.shape).to(x.dtype)
        y: Tensor = self.output_proj(context)
        return y

    def _by_group(self, made: Tensor) -> Tensor:
        """[B, n, g m] to [B g, m, n]."""
        return torch.unflatten(made.transpose(1, 2), 1, (self.groups, -1)).flatten(0, 1)
