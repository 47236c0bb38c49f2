"""Deformable attention of DAT: keys are read at learned places of the map, one set for each group of channels.

Source: Xia, Pan, Song, Li and Huang, Vision Transformer with Deformable Attention, CVPR 2022; as its authors' code has
it since DAT++ (arXiv:2309.01430, 2023), without a convolution for positions. A table, read between its entries, gives
the bias of a query and a place. Half types take queries, places, samples and bias in float32.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import normalised, without_autocast
from ctxbench.registry import register

from ._deform import widened


class ChannelNorm(nn.Module):
    """Layer normalisation over the channels of a map, which come last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = normalised(self.norm, x.flatten(2).transpose(1, 2))
        return y


@register(
    "dat",
    title="Deformable attention (DAT)",
    paper="Xia, Pan, Song, Li and Huang, Vision Transformer with Deformable Attention, CVPR 2022",
    year=2022,
    family="sparse attention",
    params="4*C**2 + 4*C + (kernel_size**2 + 5)*group_width + C//head_width*(2*table_size - 1)**2",
    macs="2*N*C**2 + B*(-(-H//stride))*(-(-W//stride))*(2*C**2 + (kernel_size**2 + 7)*C"
    " + 2*n*C + 4*n*(C//head_width) + (0 if offset_range < 0 else 2*(C//group_width)))",
    complexity="n*C**2 + n**2*C/stride**2",
    public_code="LeapLabTHU/DAT, Apache-2.0",
)
class DeformableTransformerAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; heads of `head_width` attend to one key in `stride` squared positions.

    Groups of `group_width` channels make the places of their keys by a depthwise convolution of `kernel_size`, odd. An
    `offset_range` R below 0 keeps places on the map, another one moves them by R steps of the keys at most. The bias is
    read in a table for maps of `table_size` squared, whatever the map.
    """

    def __init__(
        self,
        channels: int,
        *,
        head_width: int = 32,
        group_width: int = 64,
        kernel_size: int = 5,
        stride: int = 2,
        offset_range: float = -1.0,
        table_size: int = 14,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width, group_width=group_width, kernel_size=kernel_size)
        check_positive(stride=stride, table_size=table_size)
        check_odd("dat", kernel_size=kernel_size)
        for name, whole, part, size in (
            ("channels", channels, "group_width", group_width),
            ("group_width", group_width, "head_width", head_width),
        ):
            if whole % size:
                raise ValueError(f"{name} is {whole}; dat needs a multiple of {part} ({size})")
        if kernel_size <= stride:
            raise ValueError(f"kernel_size is {kernel_size}; dat needs one above stride ({stride})")
        self.channels, self.offset_range = channels, offset_range
        self.heads, self.groups = channels // head_width, channels // group_width
        padding = kernel_size // 2
        self.conv_offset = nn.Sequential(
            nn.Conv2d(group_width, group_width, kernel_size, stride, padding, groups=group_width),
            ChannelNorm(group_width),
            nn.GELU(),
            nn.Conv2d(group_width, 2, 1, bias=False),
        )
        self.proj_q, self.proj_k, self.proj_v, self.proj_out = (nn.Conv2d(channels, channels, 1) for _ in range(4))
        self.rpe_table = nn.Parameter(torch.empty(self.heads, 2 * table_size - 1, 2 * table_size - 1))
        nn.init.trunc_normal_(self.rpe_table, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "dat")
        wide = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x):
            query = widened(self.proj_q, x)
            places = self._places(query)  # [B g, m, 2]
            # on the CPU grid_sample reads wrong memory in half types (docs/upstream.md)
            maps = x.to(wide).reshape(len(places), -1, *x.shape[2:])
            sampled = functional.grid_sample(maps, places.unsqueeze(1), align_corners=True)
            bias = self._bias(places, *x.shape[2:]).to(x.dtype)
        sampled = sampled.reshape(x.size(0), self.channels, 1, -1).to(x.dtype)
        query, key, value = (
            self._heads(each) for each in (query.to(x.dtype), self.proj_k(sampled), self.proj_v(sampled))
        )
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        y: Tensor = self.proj_out(context.transpose(2, 3).reshape(x.shape))
        return y

    def _heads(self, made: Tensor) -> Tensor:
        """[B, C, H, W] to [B, heads, n, C / heads]; the fused kernels take channels side by side."""
        return torch.unflatten(made.flatten(2), 1, (self.heads, -1)).transpose(2, 3).contiguous()

    def _places(self, query: Tensor) -> Tensor:
        """[B g, m, 2]: where each group reads its m keys, (x, y) from -1 to 1, the middles of the outer positions."""
        layers: Any = self.conv_offset
        near, norm, act, last = layers
        made = query.reshape(query.size(0) * self.groups, -1, *query.shape[2:])
        made = widened(near, made)
        rows, columns = (int(side) for side in made.shape[2:])
        row, column = (place + 0.5 / max(len(place) - 1, 1) for place in (_spread(rows, made), _spread(columns, made)))
        centre = _grid(row, column) / 0.5 - 1
        offsets = functional.linear(act(norm(made)), last.weight.flatten(1).flip(0).to(made.dtype))
        if self.offset_range < 0:
            return (offsets + centre).clamp(-1, 1)
        reach = torch.stack([row.new_full((), self.offset_range / max(side - 1, 1)) for side in (columns, rows)])
        return offsets.tanh() * reach + centre

    def _bias(self, places: Tensor, height: int, width: int) -> Tensor:
        """[B, heads, n, m]: the tables, read at half of what lies between a query and a place."""
        tables = torch.unflatten(self.rpe_table.to(places.dtype), 0, (self.groups, -1))
        tables = tables.expand(len(places) // self.groups, -1, -1, -1, -1).flatten(0, 1)
        own = _grid(_spread(height, places), _spread(width, places)) - 0.5
        between = own.unsqueeze(1) - (places / 2).unsqueeze(1)  # [B g, n, m, 2]
        found = functional.grid_sample(tables, between, align_corners=True)
        return torch.unflatten(found, 0, (-1, self.groups)).flatten(1, 2)


def _spread(side: int, like: Tensor) -> Tensor:
    """[side]: places from 0 to 1, the first and the last position; 0 where there is one alone."""
    return torch.arange(side, device=like.device, dtype=like.dtype) / max(side - 1, 1)


def _grid(row: Tensor, column: Tensor) -> Tensor:
    """[H W, 2]: the pairs (x, y), row by row."""
    return torch.stack([column.expand(len(row), -1), row[:, None].expand(-1, len(column))], dim=2).flatten(0, 1)
