"""Focused linear attention: a ReLU feature map sharpened by a power, plus a depthwise path for detail.

Source: Han et al., FLatten Transformer: Vision Transformer using Focused Linear Attention, ICCV 2023. Without spatial
reduction, residual and norm. The public version's learned table over the positions ties it to one resolution; here it
is an option.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.registry import register

OFFSET = 1e-6  # keeps the feature map and the denominator above zero, as published


def _focus(x: Tensor, scale: Tensor, power: int) -> Tensor:
    """u**p scaled to the length of u, for u = (ReLU(x) + 1e-6) / scale and vectors along the last dimension.

    The power is taken of u / |u|, which gives the same result and does not underflow for short vectors.
    """
    u = (torch.relu(x) + OFFSET) / scale
    length = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    sharp = (u / length) ** power
    focused: Tensor = sharp / torch.linalg.vector_norm(sharp, dim=-1, keepdim=True) * length
    return focused


@register(
    "focused_linear",
    title="Focused linear attention",
    paper="Han et al., FLatten Transformer: Vision Transformer using Focused Linear Attention, ICCV 2023",
    year=2023,
    family="linear attention",
    params="4*C**2 + 2*C + (3*C if qkv_bias else 0) + (kernel**2 + 1)*(C//heads) + positions*C",
    macs="4*N*C**2 + 2*N*C*(C//heads) + kernel**2*N*C + N*C + B*C + 5*N*C",
    complexity="n*C**2",
    public_code="LeapLabTHU/FLatten-Transformer, no licence",
)
class FocusedLinearAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W], on the n = H*W positions as tokens.

    `focus` is the power of the feature map, `kernel` the size of the depthwise convolution that all heads share.
    `positions` > 0 adds the published learned table of that many positions to the keys; the module then takes only
    inputs with H*W = `positions`.
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int = 8,
        focus: int = 3,
        kernel: int = 5,
        qkv_bias: bool = True,
        positions: int = 0,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, focus=focus, kernel=kernel)
        if channels % heads:
            raise ValueError(f"channels is {channels}; focused_linear needs a multiple of heads ({heads})")
        check_odd("focused_linear", kernel=kernel)
        if positions < 0:
            raise ValueError(f"positions is {positions}; it must be 0 (no table) or the number H*W of the inputs")
        self.channels, self.heads, self.focus, self.positions = channels, heads, focus, positions
        width = channels // heads
        self.query = nn.Linear(channels, channels, bias=qkv_bias)
        self.key_value = nn.Linear(channels, 2 * channels, bias=qkv_bias)
        self.detail = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.output = nn.Linear(channels, channels)
        self.scale = nn.Parameter(torch.zeros(1, 1, channels))
        self.table = nn.Parameter(torch.zeros(1, positions, channels)) if positions else None

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "focused_linear")
        tokens = x.flatten(2).transpose(1, 2)  # [B, n, C]
        query = self.query(tokens)
        key, value = self.key_value(tokens).chunk(2, dim=2)
        if self.table is not None:
            self._check_positions(x)
            key = key + self.table
        scale = functional.softplus(self.scale)
        query = self._split(_focus(query, scale, self.focus))  # [B, heads, n, C / heads]
        key = self._split(_focus(key, scale, self.focus))
        value = self._split(value)

        weights = query @ key.mean(dim=2, keepdim=True).transpose(2, 3) + OFFSET  # [B, heads, n, 1]
        root = x.shape[2:].numel() ** -0.5
        descriptors = (key * root).transpose(2, 3) @ (value * root)  # [B, heads, C / heads, C / heads]
        # In float16 the inverse of a weight near OFFSET is infinite, so it is taken in float32 at least.
        widened = weights.to(torch.promote_types(weights.dtype, torch.float32))
        context = ((query @ descriptors) * widened.reciprocal()).to(x.dtype)
        context = context.transpose(1, 2).flatten(2) + self._details(value, x)
        return torch.unflatten(self.output(context).transpose(1, 2), 2, x.shape[2:])

    def _check_positions(self, x: Tensor) -> None:
        if x.shape[2:].numel() != self.positions:
            raise ValueError(
                f"focused_linear was built with a table of {self.positions} positions; the input has "
                f"{x.shape[2:].numel()} (H {int(x.shape[2])} x W {int(x.shape[3])})"
            )

    def _split(self, tokens: Tensor) -> Tensor:
        """[B, n, C] to [B, heads, n, C / heads]."""
        return torch.unflatten(tokens, 2, (self.heads, -1)).transpose(1, 2)

    def _details(self, value: Tensor, x: Tensor) -> Tensor:
        """The shared depthwise convolution of every head's values: [B, heads, n, C / heads] to [B, n, C]."""
        images = torch.unflatten(value.transpose(2, 3).flatten(0, 1), 2, x.shape[2:])  # [B * heads, C / heads, H, W]
        details = torch.unflatten(self.detail(images).flatten(2), 0, (-1, self.heads))
        return details.flatten(1, 2).transpose(1, 2)

    def attention(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights phi(q)^T phi(k) / sum without the convolution, and the logits q^T k / sqrt(C / heads).

        Both are `[B, heads, n queries, n keys]`; the logits are those of softmax attention with the same projections.
        """
        tokens = x.flatten(2).transpose(1, 2)
        query, key = self.query(tokens), self.key_value(tokens).chunk(2, dim=2)[0]
        if self.table is not None:
            self._check_positions(x)
            key = key + self.table
        logits = self._split(query) @ self._split(key).transpose(2, 3) * (self.channels // self.heads) ** -0.5
        scale = functional.softplus(self.scale)
        query, key = (self._split(_focus(each, scale, self.focus)) for each in (query, key))
        weights = query @ key.transpose(2, 3)
        return weights / (weights.sum(dim=3, keepdim=True) + OFFSET * key.shape[2]), logits

    def convolution(self, height: int, width: int) -> Tensor:
        """The depthwise convolution as matrices `[C / heads, n outputs, n values]`, without its bias."""
        size = height * width
        images = torch.eye(size, dtype=self.scale.dtype, device=self.scale.device).reshape(size, 1, height, width)
        images = images.expand(-1, self.channels // self.heads, -1, -1)
        weight = self.detail.weight
        padding = weight.shape[2] // 2
        return functional.conv2d(images, weight, padding=padding, groups=images.shape[1]).flatten(2).permute(1, 2, 0)
