"""Parts of the decode heads of mmsegmentation; source as in `_mmseg_heads.py`.

Products of attention are channel-first, as in the modules of ctxbench; mmsegmentation's are position-first
(docs/plugins/memory.md says what that changes).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

# Channels of the four stages of a ResNet are 256, 512, 1024 and 2048.
FIRST, MIDDLE, LAST = 256, 1024, 2048


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


class ImageMean(nn.Module):
    """The mean over the image through a 1x1 convolution, at each position."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.project = conv(LAST, channels)

    def forward(self, x: Tensor) -> Tensor:
        return resized(self.project(functional.adaptive_avg_pool2d(x, 1)), x)


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


class Regions(nn.Module):
    """[B, C, H, W] to [B, C, 110]: the means over the grids of 1, 3, 6 and 8 squared."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([functional.adaptive_avg_pool2d(x, grid).flatten(2) for grid in (1, 3, 6, 8)], dim=2)


class Encoding(nn.Module):
    """EncNet's context of [B, C, H, W]: distances to 32 code words, whose mean residuals weigh the channels."""

    def __init__(self, channels: int, words: int = 32) -> None:
        super().__init__()
        self.project, self.gate = conv(channels, channels), nn.Linear(channels, channels)
        self.words, self.scale = nn.Parameter(torch.empty(words, channels)), nn.Parameter(torch.empty(words))
        self.norm = nn.BatchNorm1d(words)

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.project(x).flatten(2).transpose(1, 2).unsqueeze(2)  # [B, n, 1, C]
        weights = torch.softmax(self.scale * (pixels - self.words).pow(2).sum(3), dim=2)  # [B, n, words]
        residuals = (weights.unsqueeze(3) * (pixels - self.words)).sum(1)  # [B, words, C]
        gate = torch.sigmoid(self.gate(torch.relu_(self.norm(residuals)).mean(1)))
        return torch.relu_(x + x * gate[:, :, None, None])


class DisentangledNonLocal(nn.Module):
    """DNL's block, [B, C, H, W] to the same: whitened attention of pairs beside one over single positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        width = channels // 2
        self.value, self.query, self.key = (nn.Conv2d(channels, width, 1) for _ in range(3))
        self.single = nn.Conv2d(channels, 1, 1)
        self.output = nn.Sequential(nn.Conv2d(width, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.scale = 1 / (0.05 * width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        value, query, key = (project(x).flatten(2) for project in (self.value, self.query, self.key))
        query -= query.mean(2, keepdim=True)
        key -= key.mean(2, keepdim=True)
        affinity = torch.softmax(torch.bmm(query.transpose(1, 2), key).mul_(self.scale), dim=2)
        pairs = torch.unflatten(torch.bmm(value, affinity.transpose(1, 2)), 2, x.shape[2:])
        singles = torch.bmm(value, torch.softmax(self.single(x).flatten(2), dim=2).transpose(1, 2)).unsqueeze(3)
        out: Tensor = x + self.output(pairs) + self.output(singles)
        return out
