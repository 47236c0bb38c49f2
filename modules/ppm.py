"""Pyramid pooling: means over grids of 1, 2, 3 and 6 squared, projected, enlarged and joined with the input.

Source: Zhao et al., Pyramid Scene Parsing Network, CVPR 2017. With `fuse` (the default), a 3x3 convolution follows, as
in the network's head; without it, the output is the concatenation. One image can be trained: the branch of one region
is then normalised with the running statistics, where the public version raises an error.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, reduced
from ctxbench.modules._norm import conv_norm_relu
from ctxbench.modules._onnx import pooled
from ctxbench.registry import register

GRIDS = (1, 2, 3, 6)  # 50 regions in all: 1 + 4 + 9 + 36


@register(
    "ppm",
    title="Pyramid pooling (PPM)",
    paper="Zhao et al., Pyramid Scene Parsing Network, CVPR 2017",
    year=2017,
    family="pyramid",
    params="4*(C*(C//4) + 2*(C//4)) + (9*(C + 4*(C//4))*C + 2*C if fuse else 0)",
    macs=("50*B*C*(C//4) + 50*B*(C + C//4) + 16*N*(C//4) + (9*N*(C + 4*(C//4))*C + N*C if fuse else 0)"),
    out_channels="C if fuse else C + 4*(C//4)",
    complexity="n*C**2",
    public_code="hszhao/semseg, MIT",
)
class PyramidPooling(nn.Module):
    """[B, C, H, W] to [B, C, H, W], or without `fuse` to [B, C + 4*(C//4), H, W]."""

    def __init__(self, channels: int, *, fuse: bool = True) -> None:
        super().__init__()
        width = reduced("ppm", channels, 4)
        self.channels = channels
        self.branches = nn.ModuleList(conv_norm_relu(channels, width) for _ in GRIDS)
        self.fuse = conv_norm_relu(channels + 4 * width, channels, 3) if fuse else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ppm")
        parts = [x]
        for grid, branch in zip(GRIDS, self.branches, strict=True):
            regions = branch(pooled(x, grid))
            parts.append(functional.interpolate(regions, x.shape[2:], mode="bilinear", align_corners=True))
        out: Tensor = self.fuse(torch.cat(parts, dim=1))
        return out
