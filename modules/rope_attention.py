"""Attention with rotary positions and registers, of DINOv3 and EVA-02: queries and keys turn with their places.

Source: Simeoni et al., DINOv3, arXiv:2508.10104, 2025, and Fang et al., EVA-02: A Visual Representation for Neon
Genesis, 2023; the rotation is that of Su et al., RoFormer, 2021, in two dimensions. Registers are tokens beside the map
(Darcet et al., Vision Transformers Need Registers, ICLR 2024): in the networks they come from the layer before, here
they are parameters, and their outputs are dropped. Keys have no bias. No residual and no norm around it. The fused
kernel holds no map of all pairs. Half types are turned in float32.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_choice, check_input, check_positive
from ctxbench.modules._layers import start_small
from ctxbench.registry import register

from ._windows import heads_of

BASES = {"dinov3": 100.0, "eva02": 10000.0}


@register(
    "rope_attention",
    title="Rotary attention with registers (DINOv3)",
    paper="Simeoni et al., DINOv3, arXiv:2508.10104, 2025; Fang et al., EVA-02, 2023",
    year=2023,
    family="attention",
    params="4*C**2 + 3*C + registers*C",
    macs="4*N*(C**2 + C) + 3*B*registers*C**2 + 2*B*n*(n + registers)*C + (H + W)*(head_width//4 + 1) + head_width//4",
    complexity="n**2*C + n*C**2",
    public_code="huggingface/pytorch-image-models, Apache-2.0",
)
class RotaryAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `registers` tokens beside the map; a head is `head_width` channels wide.

    `rope`: dinov3 turns halves of a head by places from -1 to 1, eva02 neighbouring channels by places up to
    `reference`. A `base` of 0 is 100 for dinov3 and 10,000 for eva02.
    """

    def __init__(
        self,
        channels: int,
        *,
        head_width: int = 64,
        rope: Literal["dinov3", "eva02"] = "dinov3",
        base: float = 0.0,
        registers: int = 0,
        reference: int = 16,
    ) -> None:
        super().__init__()
        check_choice("rope", rope, tuple(BASES))
        check_positive(channels=channels, head_width=head_width, reference=reference, registers=registers + 1)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; rope_attention needs a multiple of head_width ({head_width})")
        if head_width % 4:
            raise ValueError(f"head_width is {head_width}; rope_attention needs a multiple of 4")
        self.channels, self.heads, self.quarter = channels, channels // head_width, head_width // 4
        self.halves, self.base, self.reference = rope == "dinov3", base or BASES[rope], reference
        self.qkv, self.proj = nn.Linear(channels, 3 * channels, bias=False), nn.Linear(channels, channels)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))
        self.reg_token = nn.Parameter(torch.empty(1, registers, channels).normal_(std=0.02)) if registers else None
        start_small(self.qkv, self.proj)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "rope_attention")
        tokens = x.flatten(2).transpose(1, 2)
        beside = 0 if self.reg_token is None else self.reg_token.size(1)
        if self.reg_token is not None:
            tokens = torch.cat([self.reg_token.expand(x.size(0), -1, -1).to(x.dtype), tokens], dim=1)
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        maps = functional.linear(tokens, self.qkv.weight, bias).chunk(3, dim=2)
        query, key, value = (heads_of(each, self.heads) for each in maps)  # [B, heads, R + n, d]
        turns = self._turns(x)
        query = self._turned(query[:, :, beside:], *turns)
        key = torch.cat([key[:, :, :beside], self._turned(key[:, :, beside:], *turns)], dim=2)
        context = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return torch.unflatten(self.proj(context).transpose(1, 2), 2, x.shape[2:])

    def _turns(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [n, d / 2] of each position's angles: those of the row, then those of the column."""
        wide = torch.promote_types(x.dtype, torch.float32)
        places = []
        for side in x.shape[2:]:
            half = 2 * math.pi / side  # of a step, between -2 pi and 2 pi
            step, first = (2 * half, (1 - side) * half) if self.halves else (self.reference / side, 0.0)
            places.append(torch.arange(side, device=x.device, dtype=wide) * step + first)
        steps = torch.arange(self.quarter, device=x.device, dtype=wide)
        frequency = torch.exp(steps * (-math.log(self.base) / self.quarter))
        row, column = (place[:, None] * frequency for place in places)
        angles = torch.cat(
            [
                row[:, None].expand(-1, x.size(3), -1).flatten(0, 1),
                column[None].expand(x.size(2), -1, -1).flatten(0, 1),
            ],
            dim=1,
        )
        return angles.cos(), angles.sin()

    def _turned(self, tokens: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Tokens [B, heads, n, d] with each pair of channels turned by its angle."""
        wide = tokens.to(cosine.dtype)
        if self.halves:
            first, second = wide.chunk(2, dim=3)
            pair = (first * cosine - second * sine, second * cosine + first * sine)
            return torch.cat(pair, dim=3).to(tokens.dtype)
        first, second = torch.unflatten(wide, 3, (-1, 2)).unbind(4)
        pair = (first * cosine - second * sine, second * cosine + first * sine)
        return torch.stack(pair, dim=4).flatten(3).to(tokens.dtype)
