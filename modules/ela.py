"""Efficient local attention: means of rows and of columns, each convolved along its axis, scale the map.

Source: Xu, Wan, ELA: Efficient Local Attention for Deep Convolutional Neural Networks, arXiv:2403.01123, 2024; from its
equations, the variant B. One convolution and one norm serve both axes. Far positions are seen through the statistics of
the norm.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.registry import register


@register(
    "ela",
    title="Efficient local attention (ELA)",
    paper="Xu, Wan, ELA: Efficient Local Attention for Deep Convolutional Neural Networks, arXiv:2403.01123, 2024",
    year=2024,
    family="pooling",
    params="kernel_size*group_width*C + 2*C",
    macs="kernel_size*group_width*B*C*(H + W) + 2*B*C*(H + W) + 2*N*C",
    complexity="n*C",
)
class EfficientLocalAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the convolution is `kernel_size` long, odd, over groups of `group_width` channels.

    C is a multiple of `group_width` and of `norm_groups`.
    """

    def __init__(self, channels: int, *, kernel_size: int = 7, group_width: int = 1, norm_groups: int = 16) -> None:
        super().__init__()
        check_positive(channels=channels, kernel_size=kernel_size, group_width=group_width, norm_groups=norm_groups)
        check_odd("ela", kernel_size=kernel_size)
        for name, size in (("group_width", group_width), ("norm_groups", norm_groups)):
            if channels % size:
                raise ValueError(f"channels is {channels}; ela needs a multiple of {name} ({size})")
        self.channels = channels
        groups = channels // group_width
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=kernel_size // 2, groups=groups, bias=False)
        self.gn = nn.GroupNorm(norm_groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ela")
        rows, columns = (torch.sigmoid(self.gn(self.conv(x.mean(axis)))) for axis in (3, 2))
        return x * rows[:, :, :, None] * columns[:, :, None, :]
