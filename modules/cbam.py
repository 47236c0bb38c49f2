"""Convolutional block attention: a weight for each channel from mean and maximum, then one for each position.

Source: Woo et al., CBAM: Convolutional Block Attention Module, ECCV 2018. As published, from the start of the authors'
networks: the norm of the position's weight is zero, so that this weight is one half everywhere. Far positions are seen
through the mean and the maximum of the map alone.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, reduced
from ctxbench.modules._layers import largest
from ctxbench.registry import register


@register(
    "cbam",
    title="Convolutional block attention (CBAM)",
    paper="Woo et al., CBAM: Convolutional Block Attention Module, ECCV 2018",
    year=2018,
    family="pooling",
    params="2*C*(C//reduction) + C//reduction + C + 100",
    macs="4*B*C*(C//reduction) + 98*N + B*C + 2*N + 2*N*C",
    complexity="n*C + C**2",
    public_code="Jongchan/attention-module, MIT",
)
class ConvolutionalBlockAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the bottleneck has C // `reduction` channels."""

    def __init__(self, channels: int, *, reduction: int = 16) -> None:
        super().__init__()
        width = reduced("cbam", channels, reduction)
        self.channels = channels
        squeeze, excite = nn.Linear(channels, width), nn.Linear(width, channels)
        layers = nn.Sequential(nn.Flatten(), squeeze, nn.ReLU(), excite)
        conv, norm = nn.Conv2d(2, 1, 7, padding=3, bias=False), nn.BatchNorm2d(1, momentum=0.01)
        self.ChannelGate = nn.ModuleDict({"mlp": layers})
        self.SpatialGate = nn.ModuleDict({"spatial": nn.Sequential(OrderedDict(conv=conv, bn=norm))})
        nn.init.kaiming_normal_(conv.weight, mode="fan_out")
        for part in (squeeze.bias, excite.bias, norm.weight):
            nn.init.zeros_(part)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "cbam")
        bottleneck, window = self.ChannelGate["mlp"], self.SpatialGate["spatial"]
        scores = bottleneck(x.mean((2, 3))) + bottleneck(largest(x.flatten(2), 2).squeeze(2))  # [B, C]
        x = x * torch.sigmoid(scores)[:, :, None, None]
        summary = torch.cat([largest(x, 1), x.mean(dim=1, keepdim=True)], dim=1)
        return x * torch.sigmoid(window(summary))
