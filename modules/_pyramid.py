"""Base of apc and dm: branches of four sizes side by side, concatenated, and a bottleneck if it is asked for."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive


class Pyramid(nn.Module):
    """[B, C, H, W] to [B, 4*d, H, W], or with `bottleneck` to [B, C, H, W]; a branch is `branch(C, d, size)`."""

    name = ""
    branch: ClassVar[type[nn.Module]]
    sizes: ClassVar[tuple[int, int, int, int]]

    def __init__(self, channels: int, *, d: int | None = None, bottleneck: bool = False) -> None:
        super().__init__()
        width = channels if d is None else d
        check_positive(channels=channels, d=width)
        self.channels = channels
        self.branches = nn.ModuleList(self.branch(channels, width, size) for size in self.sizes)
        self.bottleneck = (
            nn.Sequential(
                nn.Conv2d(len(self.sizes) * width, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
            )
            if bottleneck
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, self.name)
        context: Tensor = self.bottleneck(torch.cat([branch(x) for branch in self.branches], dim=1))
        return context
