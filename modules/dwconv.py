"""Depthwise convolution: each channel of a position is a weighted sum of that channel in the window around it; local.

Source: Liu et al., A ConvNet for the 2020s, CVPR 2022 (ConvNeXt); the token mixer alone, without the norm, the two
linear layers and the layer scale of its block. A baseline: what a large kernel costs without global context.
"""

from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import depthwise, start_small
from ctxbench.registry import register


@register(
    "dwconv",
    title="Depthwise convolution (ConvNeXt)",
    paper="Liu et al., A ConvNet for the 2020s, CVPR 2022",
    year=2022,
    family="large kernel",
    params="(kernel_size**2 + 1)*C",
    macs="kernel_size**2*N*C",
    complexity="n*C",
    position_mixing=False,
    reach="min(H, kernel_size)*min(W, kernel_size)",
    public_code="facebookresearch/ConvNeXt, MIT",
)
class DepthwiseConvolution(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the window is `kernel_size` x `kernel_size`, odd."""

    def __init__(self, channels: int, *, kernel_size: int = 7) -> None:
        super().__init__()
        check_positive(channels=channels, kernel_size=kernel_size)
        check_odd("dwconv", kernel_size=kernel_size)
        self.channels = channels
        self.dwconv = depthwise(channels, kernel_size)
        start_small(self.dwconv)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "dwconv")
        out: Tensor = self.dwconv(x)
        return out
