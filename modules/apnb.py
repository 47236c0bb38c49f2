"""Asymmetric pyramid non-local block: positions attend to 110 pooled regions instead of to all positions.

Source: Zhu et al., Asymmetric Non-local Neural Networks for Semantic Segmentation, ICCV 2019. Queries and keys share a
projection, which is computed once, where the public version computes it twice; pooling comes after it. The context
starts at zero.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, reduced
from ctxbench.modules._onnx import pooled
from ctxbench.registry import register

GRIDS = (1, 3, 6, 8)  # 110 regions in all


def _regions(image: Tensor) -> Tensor:
    """[B, d, H, W] to [B, d, 110]: the means over the grids, one after the other."""
    return torch.cat([pooled(image, grid).flatten(2) for grid in GRIDS], dim=2)


@register(
    "apnb",
    title="Asymmetric pyramid non-local block (APNB)",
    paper="Zhu et al., Asymmetric Non-local Neural Networks for Semantic Segmentation, ICCV 2019",
    year=2019,
    family="sparse attention",
    params="2*C**2 + 3*C*(C//reduction) + 4*(C//reduction) + 4*C",
    macs="N*(3*C*(C//reduction) + 2*C**2) + 220*N*(C//reduction) + N*(C//reduction) + N*C + 220*B*(C//reduction)",
    complexity="n*C**2",
    public_code="MendelXu/ANN, Apache-2.0",
)
class AsymmetricPyramid(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; keys and values have C // `reduction` channels."""

    def __init__(self, channels: int, *, reduction: int = 2) -> None:
        super().__init__()
        width = reduced("apnb", channels, reduction)
        self.channels, self.width = channels, width
        self.features = nn.Sequential(nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.value = nn.Conv2d(channels, width, 1)
        self.context = nn.Conv2d(width, channels, 1)
        self.output = nn.Sequential(
            nn.Conv2d(2 * channels, channels, 1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        )
        nn.init.zeros_(self.context.weight)
        nn.init.zeros_(self.context.bias)  # type: ignore[arg-type]  # there is one

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "apnb")
        features = self.features(x)
        keys, values = _regions(features), _regions(self.value(x))  # [B, d, 110]
        logits = torch.bmm(features.flatten(2).transpose(1, 2), keys) / self.width**0.5  # [B, n, 110]
        context = torch.bmm(values, torch.softmax(logits, dim=2).transpose(1, 2))  # [B, d, n]
        context = self.context(torch.unflatten(context, 2, x.shape[2:]))
        out: Tensor = self.output(torch.cat([context, x], dim=1))
        return out
