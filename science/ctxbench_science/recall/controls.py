"""Modules that show what a task asks for: context of the neighbours alone, and mixing without a look at the content."""

import torch
from torch import Tensor, nn


class Local(nn.Module):
    """[B, C, H, W] -> [B, C, H, W]: a 3x3 convolution, a batch norm and a ReLU, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.near = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        near: Tensor = self.near(x)
        return x + near


class Mixing(nn.Module):
    """[B, C, H, W] -> [B, C, H, W]: fixed random weights between all positions, the same for every input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.value = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[2] * x.shape[3]
        weights = torch.randn(n, n, generator=torch.Generator().manual_seed(0)).to(x) / n**0.5
        mixed: Tensor = self.value(x).flatten(2) @ weights
        return x + mixed.view_as(x)
