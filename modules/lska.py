"""Large separable kernel attention: as lka, with a row and a column of weights in place of each depthwise window.

Source: Lau et al., Large Separable Kernel Attention: Rethinking the Large Kernel Attention Design in CNN, Expert
Systems with Applications 2024. As published: the attention of a block, with the residual around it. Not global:
nothing outside the window is seen.
"""

from collections import OrderedDict

from torch import nn

from ctxbench.modules._checks import check_listed
from ctxbench.modules._layers import depthwise
from ctxbench.registry import register

from ._visual_attention import VisualAttention

# By the size of the window: the near strip, the far strip and the far one's dilation.
STRIPS = {7: (3, 3, 2), 11: (3, 5, 2), 23: (5, 7, 3), 35: (5, 11, 3), 41: (5, 13, 3), 53: (5, 17, 3)}


@register(
    "lska",
    title="Large separable kernel attention (LSKA)",
    paper="Lau et al., Large Separable Kernel Attention, Expert Systems with Applications 2024",
    year=2023,
    family="large kernel",
    params="3*C**2 + 7*C + 2*C*((kernel_size + 5)//2 if kernel_size < 23 else (kernel_size + 13)//3)",
    macs="N*(3*C**2 + C + 2*C*((kernel_size + 5)//2 if kernel_size < 23 else (kernel_size + 13)//3))",
    complexity="n*C**2",
    position_mixing=False,
    reach="min(kernel_size, H)*min(kernel_size, W)",
    public_code="StevenLauHKHK/Large-Separable-Kernel-Attention, Apache-2.0",
)
class LargeSeparableKernelAttention(VisualAttention):
    """[B, C, H, W] to [B, C, H, W]; the window is `kernel_size` x `kernel_size`, one of those of STRIPS."""

    name = "lska"

    def __init__(self, channels: int, *, kernel_size: int = 23) -> None:
        check_listed(STRIPS, kernel_size=kernel_size)
        self.kernel_size = kernel_size  # the base asks for the unit
        super().__init__(channels)

    def unit(self, channels: int) -> nn.Module:
        near, far, dilation = STRIPS[self.kernel_size]
        return nn.Sequential(
            OrderedDict(
                conv0h=depthwise(channels, (1, near)),
                conv0v=depthwise(channels, (near, 1)),
                conv_spatial_h=depthwise(channels, (1, far), dilation=dilation),
                conv_spatial_v=depthwise(channels, (far, 1), dilation=dilation),
                conv1=nn.Conv2d(channels, channels, 1),
            )
        )
