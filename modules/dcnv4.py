"""Deformable convolution of FlashInternImage: as dcnv3, with weights of the taps that are any numbers, from one layer.

Source: Xiong et al., Efficient Deformable ConvNets: Rethinking Dynamic and Sparse Operator for Vision Applications,
CVPR 2024. As published, with stride 1, both projections and without the scale of the centre's feature. The layer of
offsets and weights has a multiple of eight outputs, of which the last few may be unused. It starts at zero: so does the
output.
"""

from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise, start_xavier
from ctxbench.registry import register

from ._deform import taps_by_column, weighed, widened


@register(
    "dcnv4",
    title="Deformable convolution v4 (FlashInternImage)",
    paper="Xiong et al., Efficient Deformable ConvNets: Rethinking Dynamic and Sparse Operator for Vision "
    "Applications, CVPR 2024",
    year=2024,
    family="sparse attention",
    params="2*C**2 + C - (-3*(C//group_width)*(kernel_size**2 - (1 if remove_center else 0))//8)*8*(C + 1)"
    " + (C if output_bias else 0) + ((dw_kernel_size**2 + 1)*C if dw_kernel_size > 0 else 0)",
    macs="N*(2*C**2 - (-3*(C//group_width)*(kernel_size**2 - (1 if remove_center else 0))//8)*8*C"
    " + dw_kernel_size**2*C + (kernel_size**2 - (1 if remove_center else 0))*(5*C + 2*(C//group_width)))"
    " + 2*(kernel_size**2 - (1 if remove_center else 0))",
    complexity="n*C**2 + n*C**2/group_width*kernel_size**2",
    position_mixing=False,
    reach="by content",
    public_code="OpenGVLab/DCNv4, MIT",
)
class DeformableConvolution4(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; groups of `group_width` channels, windows of `kernel_size` squared, odd.

    `offset_scale` multiplies taps and offsets. `dw_kernel_size`, odd, puts a depthwise convolution before the layer
    that makes offsets and weights; 0: none. `remove_center`: the window has no tap in its centre.
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
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        taps = taps_by_column("dcnv4", channels, group_width, kernel_size, dilation, remove_center)
        self.channels, self.groups, self.offset_scale = channels, channels // group_width, offset_scale
        self.register_buffer("taps", taps, persistent=False)
        self.offset_mask_dw = None
        if dw_kernel_size:
            check_positive(dw_kernel_size=dw_kernel_size)
            check_odd("dcnv4", dw_kernel_size=dw_kernel_size)
            self.offset_mask_dw = depthwise(channels, dw_kernel_size)
        self.offset_mask = ChannelLinear(channels, -(-3 * self.groups * len(taps) // 8) * 8)
        self.value_proj = ChannelLinear(channels, channels)
        self.output_proj = ChannelLinear(channels, channels, bias=output_bias)
        start_xavier(self.value_proj, self.output_proj)
        for part in self.offset_mask.parameters():
            nn.init.zeros_(part)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "dcnv4")
        made = widened(self.offset_mask, x if self.offset_mask_dw is None else self.offset_mask_dw(x)).flatten(2)
        used = made[:, : 3 * self.groups * len(self.taps)].reshape(-1, 3 * len(self.taps), made.size(2))
        moved, masks = used.split((2 * len(self.taps), len(self.taps)), dim=1)
        y: Tensor = self.output_proj(weighed(self.value_proj(x), moved, masks, self.taps, self.offset_scale))
        return y
