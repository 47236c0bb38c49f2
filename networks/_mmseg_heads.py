"""The decode heads of mmsegmentation that are more than a block between two convolutions.

Source: `mmseg/models/decode_heads` and `configs/_base_/models` of mmsegmentation (OpenMMLab, Apache-2.0): channels,
kernels, dilations, where batch normalisation, a bias and dropout are. Products of attention are channel-first, as in the
modules of ctxbench; mmsegmentation's are position-first (docs/memory.md says what that changes).
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.registry import get

WIDTH, FIRST, MIDDLE, LAST = 512, 256, 1024, 2048
# Of the four stages of a ResNet: [B, 256, H/4, W/4], and at H/8 with 512, 1024 and 2048 channels.
Maps = list[Tensor]


def conv(inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution without bias that keeps H and W, batch normalisation and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=dilation * (kernel // 2), dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def separable(inputs: int, outputs: int, dilation: int = 1) -> nn.Sequential:
    """A 3x3 convolution of each channel, then a 1x1 convolution, both with batch normalisation and ReLU."""
    each = nn.Conv2d(inputs, inputs, 3, padding=dilation, dilation=dilation, groups=inputs, bias=False)
    return nn.Sequential(each, nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv(inputs, outputs))


def resized(x: Tensor, like: Tensor) -> Tensor:
    """A map at the height and width of another."""
    return functional.interpolate(x, like.shape[-2:], mode="bilinear", align_corners=False)


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
        self.reduce, self.block, self.after = conv(LAST, WIDTH, 3), block, conv(WIDTH, WIDTH, 3)
        self.joined = conv(LAST + WIDTH, WIDTH, 3)

    def forward(self, maps: Maps) -> list[Tensor]:
        x = self.after(self.block(self.reduce(maps[3])))
        return [self.joined(torch.cat([maps[3], x], dim=1))]


class EMANet(Head):
    """Expectation-maximization attention between 3x3 convolutions; 256 channels are classified."""

    width: ClassVar[int] = 256

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.block = conv(LAST, channels, 3), get("ema").build(channels)
        self.after, self.joined = conv(channels, self.width, 3), conv(LAST + self.width, self.width, 3)

    def forward(self, maps: Maps) -> list[Tensor]:
        x = self.after(self.block(self.reduce(maps[3])))
        return [self.joined(torch.cat([maps[3], x], dim=1))]


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


class AdaptiveContext(nn.Module):
    """A branch of APCNet, [B, 2048, H, W] to [B, C, H, W]: that of `apc` with norms, and with a last convolution."""

    def __init__(self, channels: int, scale: int) -> None:
        super().__init__()
        self.regions, self.features, self.mean = conv(LAST, channels), conv(LAST, channels), conv(channels, channels)
        self.affinity = nn.Conv2d(channels, scale * scale, 1)
        self.residual, self.output = conv(channels, channels), conv(channels, channels)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        regions = self.regions(functional.adaptive_avg_pool2d(x, self.scale)).flatten(2)
        features = self.features(x)
        mean = functional.interpolate(self.mean(functional.adaptive_avg_pool2d(features, 1)), features.shape[2:])
        affinity = torch.sigmoid(self.affinity(features + mean).flatten(2))  # [B, s * s, n]
        context = self.residual(torch.bmm(regions, affinity).view_as(features))
        out: Tensor = self.output(torch.relu(context + features))
        return out


class APCNet(Branches):
    """Adaptive context at four scales."""

    def __init__(self, channels: int) -> None:
        super().__init__([AdaptiveContext(channels, scale) for scale in (1, 2, 3, 6)], channels, with_input=True)


class DynamicFilter(nn.Module):
    """A branch of DMNet, [B, 2048, H, W] to [B, C, H, W]: that of `dm` with norms, and without a last convolution."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.filters, self.features, self.norm = (
            nn.Conv2d(LAST, channels, 1),
            conv(LAST, channels),
            nn.BatchNorm2d(channels),
        )
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        filters = self.filters(functional.adaptive_avg_pool2d(x, self.size)).flatten(0, 1).unsqueeze(1)
        features = self.features(x)
        padded = functional.pad(features.flatten(0, 1).unsqueeze(0), (self.size // 2,) * 4)
        filtered = functional.conv2d(padded, filters, groups=len(filters)).view_as(features)
        return torch.relu_(self.norm(filtered))


class DMNet(Branches):
    """Dynamic filters of four sizes."""

    def __init__(self, channels: int) -> None:
        super().__init__([DynamicFilter(channels, size) for size in (1, 3, 5, 7)], channels, with_input=True)


class ImageMean(nn.Module):
    """The mean over the image through a 1x1 convolution, at each position."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.project = conv(LAST, channels)

    def forward(self, x: Tensor) -> Tensor:
        return resized(self.project(functional.adaptive_avg_pool2d(x, 1)), x)


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


class Attention(nn.Module):
    """Positions of one map attend to keys and values of another, [B, C, H, W] or [B, C, m]; logits times `scale`."""

    def __init__(self, query: nn.Module, key: nn.Module, value: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.query, self.key, self.value, self.scale = query, key, value, scale

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        logits = torch.bmm(self.query(x).flatten(2).transpose(1, 2), self.key(source).flatten(2))
        affinity = torch.softmax(logits if self.scale == 1 else logits * self.scale, dim=2)
        context = torch.bmm(self.value(source).flatten(2), affinity.transpose(1, 2))
        return torch.unflatten(context, 2, x.shape[2:])


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


class Regions(nn.Module):
    """[B, C, H, W] to [B, C, 110]: the means over the grids of 1, 3, 6 and 8 squared."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([functional.adaptive_avg_pool2d(x, grid).flatten(2) for grid in (1, 3, 6, 8)], dim=2)


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
