"""Grid attention of MaxViT: each position attends to positions spread over the whole map at equal distances.

Source: Tu et al., MaxViT: Multi-Axis Vision Transformer, ECCV 2022. One attention; with `partition` "block" it is that
in windows, the first of the network's pair. Without norm, residual and the linear layers after it. Inputs are filled
with zeros below and at the right up to multiples of the grid, where the public code refuses them.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_choice, check_positive
from ctxbench.registry import register

from ._windows import HeadAttention, from_windows, padded, relative_places, windows


class RelativePositionBias(nn.Module):
    """A learned number for each head and each difference of two places of a square: [1, heads, G G, G G]."""

    places: Tensor

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.relative_position_bias_table = nn.Parameter(torch.empty(heads, 2 * size - 1, 2 * size - 1))
        self.register_buffer("places", relative_places(size).T.contiguous(), persistent=False)  # key less query

    def forward(self) -> Tensor:
        return self.relative_position_bias_table.flatten(1)[:, self.places].unsqueeze(0)


@register(
    "grid",
    title="Grid attention (MaxViT)",
    paper="Tu et al., MaxViT: Multi-Axis Vision Transformer, ECCV 2022",
    year=2022,
    family="sparse attention",
    params="4*C**2 + 4*C + (2*grid_size - 1)**2*(C//head_width)",
    macs="B*(-(-H//grid_size))*(-(-W//grid_size))*grid_size**2*(4*C**2 + 2*grid_size**2*C)",
    complexity="n*C**2 + n*grid_size**2*C",
    position_mixing="partition == 'grid'",
    reach="min(H, grid_size)*min(W, grid_size)",
    public_code="google-research/maxvit, Apache-2.0",
)
class GridAttention(HeadAttention):
    """[B, C, H, W] to [B, C, H, W]; each position sees `grid_size` squared positions, itself among them.

    A head is `head_width` channels wide.
    """

    name = "grid"

    def __init__(
        self,
        channels: int,
        *,
        head_width: int = 32,
        grid_size: int = 7,
        partition: Literal["grid", "block"] = "grid",
    ) -> None:
        super().__init__(channels, head_width)
        check_positive(grid_size=grid_size)
        check_choice("partition", partition, ("grid", "block"))
        self.grid_size, self.partition = grid_size, partition
        self.rel_pos = RelativePositionBias(grid_size, self.heads)
        for weight in (self.qkv.weight, self.proj.weight, self.rel_pos.relative_position_bias_table):
            nn.init.normal_(weight, std=0.02)
        for layer in (self.qkv, self.proj):
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        self.check_input(x)
        size = self.grid_size
        tokens = padded(x, size)
        height, width = tokens.shape[1:3]
        if self.partition == "block":
            out = from_windows(self.attend(windows(tokens, size), self.rel_pos()), size, height, width)
        else:
            out = _from_grids(self.attend(_grids(tokens, size), self.rel_pos()), size, height, width)
        return out[:, : x.size(2), : x.size(3)].permute(0, 3, 1, 2)


def _grids(x: Tensor, size: int) -> Tensor:
    """[B, H, W, C] to [B a b, G G, C]: group (u, v) has the positions (i a + u, j b + v), a = H / G and b = W / G."""
    batch, height, width, channels = x.shape
    down, across = height // size, width // size
    rows = x.reshape(batch, size, down, width * channels).transpose(1, 2)  # [B, a, G, W C]
    columns = rows.reshape(batch * down, size * size, across, channels).transpose(1, 2)
    return columns.reshape(-1, size * size, channels)


def _from_grids(tokens: Tensor, size: int, height: int, width: int) -> Tensor:
    """The inverse of `_grids`, to [B, height, width, C]."""
    channels, down, across = tokens.size(2), height // size, width // size
    columns = tokens.reshape(-1, across, size * size, channels).transpose(1, 2)  # [B a, G G, b, C]
    rows = columns.reshape(-1, down, size, width * channels).transpose(1, 2)
    return rows.reshape(-1, height, width, channels)
