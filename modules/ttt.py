"""Test-time training: two small networks take a training step on the image's keys and values, then read its queries.

Source: Han et al., ViT^3: Unlocking Test-Time Training in Vision, CVPR 2026, arXiv:2512.01643; the step in closed form,
so that nothing but plain operators runs. The first network has a gated layer for each head, the second a depthwise
convolution. Each image has its own weights. Without rotary code. Half types take the step in float32: its errors are
divided by n.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import start_small, without_autocast
from ctxbench.registry import register

SCALE = 3.0  # the loss is divided by the square root of 9, whatever the width of a head


@register(
    "ttt",
    title="Test-time training (ViT^3)",
    paper="Han et al., ViT^3: Unlocking Test-Time Training in Vision, CVPR 2026, arXiv:2512.01643",
    year=2026,
    family="linear attention",
    params="4*C*(C + head_width) + 3*(C + head_width) + 2*C*head_width + 9*head_width + C",
    macs="N*(4*C*(C + head_width) + 6*C*head_width + 18*head_width + 8*C + head_width)",
    complexity="n*C**2 + n*C*head_width",
    public_code="LeapLabTHU/ViTTT, MIT",
)
class TestTimeTraining(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; a head is `head_width` channels wide, the convolution sees as many more."""

    def __init__(self, channels: int, *, head_width: int = 32) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; ttt needs a multiple of head_width ({head_width})")
        self.channels, self.heads, self.head_width = channels, channels // head_width, head_width
        self.qkv = nn.Linear(channels, 3 * (channels + head_width))
        self.w1, self.w2 = (nn.Parameter(torch.empty(1, self.heads, head_width, head_width)) for _ in range(2))
        self.w3 = nn.Parameter(torch.empty(head_width, 1, 3, 3))
        self.proj = nn.Linear(channels + head_width, channels)
        start_small(self.qkv, self.proj)
        for weight in (self.w1, self.w2, self.w3):
            nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "ttt")
        tokens = self.qkv(x.flatten(2).transpose(1, 2))
        heads, maps = tokens.split((3 * self.channels, 3 * self.head_width), dim=2)
        query, key, value = (
            torch.unflatten(each, 2, (self.heads, -1)).transpose(1, 2) for each in heads.chunk(3, dim=2)
        )  # each [B, heads, n, d]
        first, second = self._gated_step(key, value)
        context = (query @ first) * functional.silu(query @ second)
        images = [torch.unflatten(each.transpose(1, 2), 2, x.shape[2:]) for each in maps.chunk(3, dim=2)]
        context = torch.cat((context.transpose(1, 2).flatten(2), self._convolved(*images)), dim=2)
        return torch.unflatten(self.proj(context).transpose(1, 2), 2, x.shape[2:])

    def _gated_step(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """w1 and w2 after a step on the loss -<(k w1) silu(k w2), v> / 3, its mean over the positions."""
        wide = torch.promote_types(key.dtype, torch.float32)
        value, gate, opening = value.to(wide), (key @ self.w1).to(wide), (key @ self.w2).to(wide)
        error = value * (-1 / (SCALE * key.size(2)))
        share = torch.sigmoid(opening)
        slope = share * (1 + opening * (1 - share))
        with without_autocast(key):
            keys = key.to(wide).transpose(2, 3)
            gradients = keys @ (error * (opening * share)), keys @ (error * (gate * slope))
        first, second = (_stepped(w, own, 2) for w, own in zip((self.w1, self.w2), gradients, strict=True))
        return first.to(key.dtype), second.to(key.dtype)

    def _convolved(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[B, d, H, W] each to [B, n, d]: w3, after a step on the loss -<w3 * k, v> / 3, convolved with the query."""
        wide = torch.promote_types(key.dtype, torch.float32)
        batch, width, height, across = key.shape
        error = value.to(wide) * (-1 / (SCALE * height * across))
        with without_autocast(key):
            kernels = error.reshape(batch * width, 1, height, across)
            gradient = functional.conv2d(
                key.to(wide).reshape(1, batch * width, height, across), kernels, padding=1, groups=batch * width
            )
        kernels = _stepped(self.w3.flatten(1), gradient.reshape(batch, width, 9), 2)
        kernels = kernels.to(query.dtype).reshape(batch * width, 1, 3, 3)
        query = query.reshape(1, batch * width, height, across)
        out = functional.conv2d(query, kernels, padding=1, groups=batch * width)
        return out.reshape(batch, width, -1).transpose(1, 2)


def _stepped(weight: Tensor, gradient: Tensor, dim: int) -> Tensor:
    """Weights less their gradient, whose length over `dim` is kept below 1."""
    length: Tensor = torch.linalg.vector_norm(gradient, dim=dim, keepdim=True)
    return weight - gradient / (length + 1)
