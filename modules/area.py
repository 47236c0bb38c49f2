"""Area attention of YOLOv12: positions attend within one of four stripes of the map, beside a depthwise convolution.

Source: Tian et al., YOLOv12: Attention-Centric Real-Time Object Detectors, arXiv:2502.12524, 2025; from its equations,
in the form of its first release. Where n is no multiple of the areas, the last run of positions is shorter; the public
code fails there. Beyond its own run a position sees the window of the convolution alone. Its statistics start and move
as in the detectors. No residual.

A run of a position's channels holds query, key and value of one head. The fused kernel holds no map of all pairs.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import depthwise, gradient_in_order
from ctxbench.registry import register


class NormedConvolution(nn.Module):
    """A convolution without bias and its batch normalisation, as the detectors have it."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv, self.bn = conv, nn.BatchNorm2d(conv.out_channels, eps=1e-3, momentum=0.03)
        nn.init.trunc_normal_(conv.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = gradient_in_order(self.bn(self.conv(x)))
        return out


@register(
    "area",
    title="Area attention (YOLOv12)",
    paper="Tian et al., YOLOv12: Attention-Centric Real-Time Object Detectors, arXiv:2502.12524, 2025",
    year=2025,
    family="sparse attention",
    params="4*C**2 + kernel_size**2*C + 10*C",
    macs=(
        "N*(4*C**2 + kernel_size**2*C + 5*C)"
        " + 2*B*C*((n//(-(-n//area)))*(-(-n//area))**2 + (n - n//(-(-n//area))*(-(-n//area)))**2)"
    ),
    complexity="n**2*C/area + n*C**2",
    position_mixing="area == 1",
    reach="min(n, -(-n//area) + kernel_size//2*(kernel_size + (0 if n//area*area == n else 1)))",
    public_code="sunsmarterjie/yolov12, AGPL-3.0",
)
class AreaAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; attention within `area` runs of positions, row by row.

    A head is `head_width` channels wide. The convolution is `kernel_size` x `kernel_size`, odd. `reach` is that of the
    centre of an odd map, and of one whose runs are whole rows; that of others lies up to half a window off.
    """

    def __init__(self, channels: int, *, head_width: int = 32, area: int = 4, kernel_size: int = 7) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width, area=area, kernel_size=kernel_size)
        check_odd("area", kernel_size=kernel_size)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; area needs a multiple of head_width ({head_width})")
        self.channels, self.heads, self.area = channels, channels // head_width, area
        self.qkv = NormedConvolution(nn.Conv2d(channels, 3 * channels, 1, bias=False))
        self.pe = NormedConvolution(depthwise(channels, kernel_size, bias=False))
        self.proj = NormedConvolution(nn.Conv2d(channels, channels, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "area")
        maps = self.qkv(x).flatten(2)  # [B, 3 C, n]
        value = torch.unflatten(maps, 1, (self.heads, -1)).chunk(3, dim=2)[2].flatten(1, 2)
        tokens = maps.transpose(1, 2).contiguous()  # the fused kernel reads the channels of a position side by side
        length = -(-tokens.size(1) // self.area)
        whole = tokens.size(1) // length * length
        parts = [self._attend(tokens[:, :whole], length)]
        if whole < tokens.size(1):
            parts.append(self._attend(tokens[:, whole:], tokens.size(1) - whole))
        context = torch.cat(parts, dim=1).transpose(1, 2)
        context, value = (torch.unflatten(each, 2, x.shape[2:]) for each in (context, value))
        out: Tensor = self.proj(self.pe(value) + context)
        return out

    def _attend(self, tokens: Tensor, length: int) -> Tensor:
        """[B, m, 3 C] to [B, m, C]: attention within runs of `length` positions, which divides m."""
        runs = tokens.reshape(-1, length, self.heads, tokens.size(2) // self.heads).transpose(1, 2)
        query, key, value = runs.chunk(3, dim=3)  # each [B m / length, heads, length, C / heads]
        context = functional.scaled_dot_product_attention(query, key, value)
        return context.transpose(1, 2).reshape(tokens.size(0), -1, self.channels)
