"""Focal modulation: each position is multiplied by windows around it and by one mean of all, each with its own gate.

Source: Yang et al., Focal Modulation Networks, NeurIPS 2022. As published, with the two levels of the networks' small
receptive field, and without their residual and norms. Beyond the windows, positions are seen through the mean alone.
"""

from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, depthwise, start_small
from ctxbench.registry import register


@register(
    "focal",
    title="Focal modulation",
    paper="Yang et al., Focal Modulation Networks, NeurIPS 2022",
    year=2022,
    family="pyramid",
    params=(
        "4*C**2 + 4*C + (C + 1)*(focal_level + 1) + C*(focal_level*focal_window**2"
        " + 2*focal_window*focal_level*(focal_level - 1) + 2*focal_level*(focal_level - 1)*(2*focal_level - 1)//3)"
    ),
    macs=(
        "N*C*(4*C + 2*focal_level + 3 + focal_level*focal_window**2 + 2*focal_window*focal_level*(focal_level - 1)"
        " + 2*focal_level*(focal_level - 1)*(2*focal_level - 1)//3) + B*C"
    ),
    complexity="n*C**2",
    public_code="microsoft/FocalNet, MIT",
)
class FocalModulation(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `focal_level` windows, one after the other, the first of `focal_window`."""

    def __init__(self, channels: int, *, focal_level: int = 2, focal_window: int = 3) -> None:
        super().__init__()
        check_positive(channels=channels, focal_level=focal_level, focal_window=focal_window)
        check_odd("focal", focal_window=focal_window)
        self.channels = channels
        self.f = ChannelLinear(channels, 2 * channels + focal_level + 1)
        self.h = nn.Conv2d(channels, channels, 1)
        self.proj = ChannelLinear(channels, channels)
        self.focal_layers = nn.ModuleList(
            nn.Sequential(depthwise(channels, focal_window + 2 * level, bias=False), nn.GELU())
            for level in range(focal_level)
        )
        start_small(self.f, self.proj)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "focal")
        levels = len(self.focal_layers)
        query, context, gates = self.f(x).split([self.channels, self.channels, levels + 1], dim=1)
        total: Tensor | float = 0.0
        for layer, gate in zip(self.focal_layers, gates.split(1, dim=1), strict=False):
            context = layer(context)
            total = context * gate + total
        mean = functional.gelu(context.mean((2, 3), keepdim=True))
        out: Tensor = self.proj(query * self.h(total + mean * gates[:, levels:]))
        return out
