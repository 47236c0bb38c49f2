"""The decode heads of mmsegmentation that are more than a block between two convolutions.

Source: `mmseg/models/decode_heads` and `configs/_base_/models` of mmsegmentation (OpenMMLab, Apache-2.0): channels,
kernels, dilations, where batch normalisation, a bias and dropout are.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from ctxbench.networks._mmseg_blocks import (
    FIRST,
    LAST,
    MIDDLE,
    AdaptiveContext,
    Attention,
    DisentangledNonLocal,
    DynamicFilter,
    Encoding,
    ImageMean,
    Regions,
    conv,
    resized,
    separable,
)
from ctxbench.registry import get

WIDTH = 512
# Of the four stages of a ResNet: [B, 256, H/4, W/4], and at H/8 with 512, 1024 and 2048 channels.
Maps = list[Tensor]


class Head(nn.Module):
    """Maps of four stages to maps [B, `width`, H/8, W/8], each of which is classified on its own."""

    width: ClassVar[int] = WIDTH
    outputs: ClassVar[int] = 1

    def forward(self, maps: Maps) -> list[Tensor]:
        raise NotImplementedError


class FCN(Head):
    """A block between two 3x3 convolutions, and a third over its result beside the backbone's last map."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.reduce, self.block, self.after = conv(LAST, WIDTH, 3), block, conv(WIDTH, self.width, 3)
        self.joined = conv(LAST + self.width, self.width, 3)

    def forward(self, maps: Maps) -> list[Tensor]:
        x = self.after(self.block(self.reduce(maps[3])))
        return [self.joined(torch.cat([maps[3], x], dim=1))]


class DNLNet(FCN):
    """Disentangled non-local attention."""

    def __init__(self, channels: int) -> None:
        super().__init__(DisentangledNonLocal(channels))


class EMANet(FCN):
    """Expectation-maximization attention; 256 channels are classified."""

    width: ClassVar[int] = 256

    def __init__(self, channels: int) -> None:
        super().__init__(get("ema").build(channels))


class EncNet(Head):
    """A 3x3 convolution and encoding; without the loss of the classes that are in the image, which has no maps."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(LAST, channels, 3), Encoding(channels))

    def forward(self, maps: Maps) -> list[Tensor]:
        return [self.layers(maps[3])]


class ISANet(Head):
    """Interlaced sparse self-attention after a 3x3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(LAST, channels, 3), get("isa").build(channels))

    def forward(self, maps: Maps) -> list[Tensor]:
        return [self.layers(maps[3])]


class PSPNet(Head):
    """Pyramid pooling, joined by a 3x3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(get("ppm").build(LAST, {"fuse": False}), conv(2 * LAST, channels, 3))

    def forward(self, maps: Maps) -> list[Tensor]:
        return [self.layers(maps[3])]


class Branches(Head):
    """Branches of the last map side by side, joined by a 3x3 convolution."""

    def __init__(self, branches: list[nn.Module], channels: int, *, with_input: bool) -> None:
        super().__init__()
        self.branches, self.with_input = nn.ModuleList(branches), with_input
        self.joined = conv(len(branches) * channels + (LAST if with_input else 0), channels, 3)

    def forward(self, maps: Maps) -> list[Tensor]:
        parts = [maps[3]] if self.with_input else []
        return [self.joined(torch.cat([*parts, *(branch(maps[3]) for branch in self.branches)], dim=1))]


class APCNet(Branches):
    """Adaptive context at four scales."""

    def __init__(self, channels: int) -> None:
        super().__init__([AdaptiveContext(channels, scale) for scale in (1, 2, 3, 6)], channels, with_input=True)


class DMNet(Branches):
    """Dynamic filters of four sizes."""

    def __init__(self, channels: int) -> None:
        super().__init__([DynamicFilter(channels, size) for size in (1, 3, 5, 7)], channels, with_input=True)


class DeepLabV3(Branches):
    """Atrous spatial pyramid pooling: dilated 3x3 convolutions beside a 1x1 one and the image's mean."""

    def __init__(self, channels: int) -> None:
        windows = [conv(LAST, channels, 3, rate) for rate in (12, 24, 36)]
        super().__init__([ImageMean(channels), conv(LAST, channels), *windows], channels, with_input=False)


class DeepLabV3Plus(Branches):
    """DeepLabV3 with separable convolutions, then two of them at H/4 beside 48 channels of the first stage."""

    def __init__(self, channels: int) -> None:
        windows = [separable(LAST, channels, rate) for rate in (12, 24, 36)]
        super().__init__([ImageMean(channels), conv(LAST, channels), *windows], channels, with_input=False)
        self.joined = separable(5 * channels, channels)
        self.first = conv(FIRST, 48)
        self.output = nn.Sequential(separable(channels + 48, channels), separable(channels, channels))

    def forward(self, maps: Maps) -> list[Tensor]:
        (context,) = super().forward(maps)
        first = self.first(maps[0])
        return [self.output(torch.cat([resized(context, first), first], dim=1))]


class DANet(Head):
    """Attention over positions and over channels, each between 3x3 convolutions; their sum and both are classified."""

    outputs: ClassVar[int] = 3

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce_positions, self.reduce_channels = conv(LAST, channels, 3), conv(LAST, channels, 3)
        self.positions = Attention(
            nn.Conv2d(channels, 64, 1), nn.Conv2d(channels, 64, 1), nn.Conv2d(channels, channels, 1)
        )
        self.scales = nn.Parameter(torch.zeros(2))
        self.after_positions, self.after_channels = conv(channels, channels, 3), conv(channels, channels, 3)

    def forward(self, maps: Maps) -> list[Tensor]:
        x = self.reduce_positions(maps[3])
        positions = self.after_positions(self.scales[0] * self.positions(x, x) + x)
        x = self.reduce_channels(maps[3])
        channels = self.after_channels(self.scales[1] * self._over_channels(x) + x)
        return [positions + channels, positions, channels]

    @staticmethod
    def _over_channels(x: Tensor) -> Tensor:
        rows = x.flatten(2)
        gram = torch.bmm(rows, rows.transpose(1, 2))
        affinity = torch.softmax(gram.max(dim=2, keepdim=True).values - gram, dim=2)
        return torch.bmm(affinity, rows).view_as(x)


class ANN(Head):
    """Attention of the last stage to regions of the third, then of the result to regions of itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        width, scale = 256, 256**-0.5
        keys, values = (nn.Sequential(layer, Regions()) for layer in (conv(MIDDLE, width), nn.Conv2d(MIDDLE, width, 1)))
        self.fusion, self.fused = Attention(conv(LAST, width), keys, values, scale), nn.Conv2d(width, LAST, 1)
        self.join = nn.Sequential(nn.Conv2d(2 * LAST, LAST, 1, bias=False), nn.BatchNorm2d(LAST))
        self.reduce = nn.Sequential(nn.Dropout2d(0.1), conv(LAST, channels, 3))
        both = conv(channels, width)
        values = nn.Sequential(nn.Conv2d(channels, width, 1), Regions())
        self.context = Attention(both, nn.Sequential(both, Regions()), values, scale)
        self.contextual, self.output = nn.Conv2d(width, channels, 1), conv(2 * channels, channels)

    def forward(self, maps: Maps) -> list[Tensor]:
        context = self.fused(self.fusion(maps[3], maps[2]))
        x = self.reduce(self.join(torch.cat([context, maps[3]], dim=1)))
        return [self.output(torch.cat([self.contextual(self.context(x, x)), x], dim=1))]
