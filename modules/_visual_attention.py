"""Base of msca and lka: features times weights, which a large window of them gives, between 1x1 convolutions."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import start_by_outputs


class VisualAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `spatial_gating_unit` gives the weights."""

    name = ""

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_positive(channels=channels)
        self.channels = channels
        self.proj_1 = nn.Conv2d(channels, channels, 1)
        self.spatial_gating_unit = self.unit(channels)
        self.proj_2 = nn.Conv2d(channels, channels, 1)
        start_by_outputs(self.modules())

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, self.name)
        features = functional.gelu(self.proj_1(x))
        return torch.add(x, self.proj_2(self.spatial_gating_unit(features) * features))

    def unit(self, channels: int) -> nn.Module:
        """The layers from features to weights, both [B, C, H, W]."""
        raise AssertionError("each block defines its own")
