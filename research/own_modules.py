"""Twelve modules as papers write them. They test the conventions of counters; `Recurrent` alone corrected a rule."""
# mypy: disable-error-code="no-any-return"

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 32


class Mixer(nn.Module):
    """MLP-Mixer's layer on a map of 16 x 16."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.tokens = nn.Sequential(nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 256))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = x.flatten(2).transpose(1, 2)
        y = y + self.tokens(self.norms[0](y).transpose(1, 2)).transpose(1, 2)
        return (y + self.channels(self.norms[1](y))).transpose(1, 2).view_as(x)


class InvertedResidual(nn.Module):
    """MobileNetV3's block, with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(WIDTH, 96, 1, bias=False), nn.BatchNorm2d(96), nn.Hardswish())
        self.mix = nn.Sequential(
            nn.Conv2d(96, 96, 5, padding=2, groups=96, bias=False), nn.BatchNorm2d(96), nn.Hardswish()
        )
        self.down, self.up = nn.Conv2d(96, 24, 1), nn.Conv2d(24, 96, 1)
        self.project = nn.Sequential(nn.Conv2d(96, WIDTH, 1, bias=False), nn.BatchNorm2d(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mix(self.expand(x))
        pooled = functional.adaptive_avg_pool2d(y, 1)
        return x + self.project(y * functional.hardsigmoid(self.up(functional.relu(self.down(pooled)))))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.conv, self.expand = (
            nn.Conv2d(WIDTH, 8, 1, bias=False),
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.Conv2d(8, WIDTH, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.BatchNorm2d(WIDTH)])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norms[0](self.reduce(x)))
        y = self.relu(self.norms[1](self.conv(y)))
        return self.relu(self.norms[2](self.expand(y)) + x)


class WindowAttention(nn.Module):
    """Swin's attention in windows of 8 x 8, with a bias of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.zeros(4, 64, 64))
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        windows = functional.unfold(x, 8, stride=8).transpose(1, 2).reshape(-1, WIDTH, 64).transpose(1, 2)
        q, k, v = self.qkv(windows).view(-1, 64, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        context = self.softmax(q * (WIDTH // 4) ** -0.5 @ k.transpose(-2, -1) + self.bias) @ v
        return self.out(context.transpose(1, 2).flatten(2))


class EinsumAttention(nn.Module):
    """Attention with two equations, a fixed softmax and a projection by a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Conv1d(WIDTH, 3 * WIDTH, 1, bias=False)
        self.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x.flatten(2)).chunk(3, 1)
        affinity = functional.softmax(torch.einsum("b c i, b c j -> b i j", q, k), dim=-1)
        return torch.einsum("b i j, b c j -> b i c", affinity, v) @ self.weight


class TopDown(nn.Module):
    """A step of a feature pyramid."""

    def __init__(self) -> None:
        super().__init__()
        self.lateral, self.smooth = nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        above = functional.interpolate(functional.max_pool2d(x, 2), scale_factor=2, mode="nearest")
        return functional.relu(self.smooth(self.lateral(x).add(above)))


class UpStep(nn.Module):
    """A step of a U-Net's decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(WIDTH, WIDTH, 2, stride=2), nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1)
        self.norm, self.act = nn.GroupNorm(8, WIDTH), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(torch.cat([self.up(functional.avg_pool2d(x, 2)), x], 1))))


class Recurrent(nn.Module):
    """A GRU along the rows of a map."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 3, 1).flatten(0, 1)
        return self.out(self.gru(rows)[0])


class ReNet(nn.Module):
    """LSTMs in both directions along the rows of a map, then along its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.columns = nn.LSTM(WIDTH, WIDTH // 2, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        y = self.rows(x.permute(0, 2, 3, 1).flatten(0, 1))[0].view(batch, height, width, WIDTH)
        y = self.columns(y.transpose(1, 2).flatten(0, 1))[0].view(batch, width, height, WIDTH)
        return y.permute(0, 3, 2, 1)


class Scanned(nn.Module):
    """A cell of a GRU that goes over the columns of a map, and one of an RNN for their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.mean = nn.GRUCell(WIDTH, 16), nn.RNNCell(16, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.size(0) * x.size(2), 16)
        for column in x.permute(3, 0, 2, 1).flatten(1, 2):
            state = self.cell(column, state)
        return self.mean(state)


class Sampled(nn.Module):
    """A map that is sampled at offsets that a convolution gives."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.out = nn.Conv2d(WIDTH, 2, 3, padding=1), nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        grid = torch.tanh(self.offset(x)).permute(0, 2, 3, 1)
        return self.out(functional.grid_sample(x, grid, align_corners=False))


class Encoder(nn.Module):
    """PyTorch's own layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True, norm_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(2).transpose(1, 2))


OWN: dict[str, Callable[[], nn.Module]] = {
    each.__name__: each
    for each in (
        Mixer, InvertedResidual, Bottleneck, WindowAttention, EinsumAttention, TopDown, UpStep, Recurrent, ReNet,
        Scanned, Sampled, Encoder,
    )
}  # fmt: skip
SHAPE = (2, WIDTH, 16, 16)
