"""Expectation-maximization attention, not efficient multi-scale attention: positions are mixtures of a few EM bases.

Source: Li et al., Expectation-Maximization Attention Networks for Semantic Segmentation, ICCV 2019; from its equations.
With `gradient` "none", as published, the steps run without a gradient: the input is reached by the residual alone, and
the first convolution is not trained. Each training forward moves the stored bases.
"""

from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_choice, check_input, check_positive
from ctxbench.registry import register

OFFSET = 1e-6  # keeps both normalisations above zero, as published


def _normalised(bases: Tensor) -> Tensor:
    """Bases [B, C, k] of unit length over C; the length in float32 at least."""
    wide = bases.to(torch.promote_types(bases.dtype, torch.float32))
    unit: Tensor = wide / (OFFSET + torch.linalg.vector_norm(wide, dim=1, keepdim=True))
    return unit.to(bases.dtype)


@register(
    "ema",
    title="Expectation-maximization attention (EMA)",
    paper="Li et al., Expectation-Maximization Attention Networks for Semantic Segmentation, ICCV 2019",
    year=2019,
    family="matrix decomposition",
    params="2*C**2 + 3*C",
    macs="2*N*C**2 + (2*steps + 1)*N*C*bases + N*C",
    complexity="n*bases*C + n*C**2",
    stops_gradient="gradient == 'none'",
    public_code="XiaLiPKU/EMANet, GPL-3.0; mmsegmentation, Apache-2.0",
)
class ExpectationMaximization(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `bases` bases after `steps` EM steps.

    `gradient`: "none", or "unrolled" through all steps. `momentum` is the share that stored bases keep.
    """

    def __init__(
        self,
        channels: int,
        *,
        bases: int = 64,
        steps: int = 3,
        momentum: float = 0.9,
        gradient: Literal["none", "unrolled"] = "none",
    ) -> None:
        super().__init__()
        check_positive(channels=channels, bases=bases, steps=steps)
        check_choice("gradient", gradient, ("none", "unrolled"))
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum is {momentum}; it must be from 0 to 1")
        self.channels, self.steps, self.momentum, self.unrolled = channels, steps, momentum, gradient == "unrolled"
        self.input = nn.Conv2d(channels, channels, 1)
        self.output = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels, momentum=3e-4)
        for layer in (self.input, self.output):
            nn.init.normal_(layer.weight, std=(2 / channels) ** 0.5)
        self.input.requires_grad_(self.unrolled)
        self.register_buffer("bases", _normalised(torch.randn(1, channels, bases) * (2 / bases) ** 0.5))
        self.bases: Tensor

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ema")
        with nullcontext() if self.unrolled else torch.no_grad():
            context, bases = self._steps(self.input(x).flatten(2))
        if self.training:
            with torch.no_grad():
                self.bases.lerp_(bases.mean(0, keepdim=True).to(self.bases.dtype), 1 - self.momentum)
        context = torch.relu(torch.unflatten(context, 2, x.shape[2:]))
        return torch.relu(self.norm(self.output(context)) + x)

    def _steps(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mixture [B, C, n] of [B, C, n], and the bases [B, C, k] that it is made of."""
        bases = self.bases.clone().to(x.dtype).expand(x.size(0), -1, -1)
        weights = x
        for _ in range(self.steps):
            weights = torch.softmax(torch.bmm(x.transpose(1, 2), bases), dim=2)  # [B, n, k]
            wide = torch.promote_types(x.dtype, torch.float32)
            total = weights.sum(1, keepdim=True, dtype=wide)  # [B, 1, k]
            bases = _normalised((torch.bmm(x, weights) / (OFFSET + total)).to(x.dtype))
        return torch.bmm(bases, weights.transpose(1, 2)), bases
