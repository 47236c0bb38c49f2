"""Neighbourhood attention: each position attends to the positions of a square around it, which stays in the map; local.

Source: Hassani et al., Neighborhood Attention Transformer, CVPR 2023, and, with a dilation, Hassani and Shi, Dilated
Neighborhood Attention Transformer, arXiv:2209.15001, 2022. At the border the square moves inside, so that each position
has as many keys. A map smaller than it is filled with zeros below and at the right. Without norm and residual.

Keys and values of all squares are gathered, kernel_size^2 copies of the map; the published kernels hold none of them.
More positions attend to one near a border, and on a map of few squares that is each: `reach` counts them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_odd, check_positive
from ctxbench.modules._layers import start_small
from ctxbench.registry import register

from ._windows import HeadAttention, heads_of


@register(
    "neighborhood",
    title="Neighborhood attention (NAT)",
    paper="Hassani et al., Neighborhood Attention Transformer, CVPR 2023",
    year=2023,
    family="sparse attention",
    params="4*C**2 + 4*C + (2*kernel_size - 1)**2*(C//head_width)",
    macs="N*C**2 + B*max(H, kernel_size*dilation)*max(W, kernel_size*dilation)*C*(3*C + 2*kernel_size**2 + 1)",
    complexity="n*C**2 + n*kernel_size**2*C",
    position_mixing=False,
    reach=(
        "(((H - H//2 + H//2//dilation*dilation + dilation - 1)//dilation - 1 if H//2//dilation"
        " > (H - H//2 + H//2//dilation*dilation + dilation - 1)//dilation - kernel_size - 1"
        " else H//2//dilation + kernel_size//2)"
        " + 1 - (0 if H//2//dilation < kernel_size else H//2//dilation - kernel_size//2))"
        "*"
        "(((W - W//2 + W//2//dilation*dilation + dilation - 1)//dilation - 1 if W//2//dilation"
        " > (W - W//2 + W//2//dilation*dilation + dilation - 1)//dilation - kernel_size - 1"
        " else W//2//dilation + kernel_size//2)"
        " + 1 - (0 if W//2//dilation < kernel_size else W//2//dilation - kernel_size//2))"
    ),
    public_code="SHI-Labs/NATTEN, MIT",
)
class NeighborhoodAttention(HeadAttention):
    """[B, C, H, W] to [B, C, H, W]; each position attends to `kernel_size` squared ones, `dilation` apart.

    A head is `head_width` channels wide; `kernel_size` is odd and at least 3.
    """

    name = "neighborhood"

    def __init__(self, channels: int, *, head_width: int = 32, kernel_size: int = 7, dilation: int = 1) -> None:
        super().__init__(channels, head_width)
        check_positive(kernel_size=kernel_size, dilation=dilation)
        check_odd("neighborhood", kernel_size=kernel_size)
        if kernel_size < 3:
            raise ValueError(f"kernel_size is {kernel_size}; it must be at least 3")
        self.kernel_size, self.dilation = kernel_size, dilation
        self.rpb = nn.Parameter(torch.empty(self.heads, 2 * kernel_size - 1, 2 * kernel_size - 1))
        nn.init.trunc_normal_(self.rpb, std=0.02)
        start_small(self.qkv, self.proj)

    def forward(self, x: Tensor) -> Tensor:
        self.check_input(x)
        batch, height, width = x.size(0), int(x.size(2)), int(x.size(3))
        least = self.kernel_size * self.dilation
        down, across = max(least - height, 0), max(least - width, 0)
        image = functional.pad(x, (0, across, 0, down)) if down or across else x
        query, key, value = (
            heads_of(each, self.heads) for each in self.qkv(image.flatten(2).transpose(1, 2)).chunk(3, dim=2)
        )
        scale = (self.channels // self.heads) ** -0.5
        places, steps = self._neighbours(height + down, width + across, x.device)  # each [n, k k]
        bias = self.rpb.flatten(1)[:, steps].unsqueeze(2)  # [heads, n, 1, k k]
        logits = (query * scale).flatten(0, 1).unsqueeze(2) @ key.flatten(0, 1)[:, places].transpose(2, 3)
        weights = torch.softmax(logits + (bias.repeat(batch, 1, 1, 1) if batch > 1 else bias), dim=3)
        context = (weights @ value.flatten(0, 1)[:, places]).squeeze(2)  # [B heads, n, C / heads]
        maps = torch.unflatten(context, 0, (batch, -1)).transpose(2, 3).flatten(1, 2)  # [B, C, n]
        maps = torch.unflatten(maps, 2, (height + down, width + across))[:, :, :height, :width]
        out = self.proj(maps.flatten(2).transpose(1, 2))
        return torch.unflatten(out.transpose(1, 2), 2, (height, width))

    def _neighbours(self, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Of each position its keys, and for each the place of its bias: [n, k k] both."""
        rows, columns = self._along(height), self._along(width)
        side = 2 * self.kernel_size - 1
        down = [[(key * width, step * side) for key, step in own] for own in rows]
        by_row, by_column = (torch.tensor(each, device=device).unbind(2) for each in (down, columns))
        keys, steps = (
            (row[:, None, :, None] + column[None, :, None, :]).flatten(0, 1).flatten(1)
            for row, column in zip(by_row, by_column, strict=True)
        )
        return keys, steps

    def _along(self, length: int) -> list[list[tuple[int, int]]]:
        """Of each row its `kernel_size` keys, each with its step from the row, counted from the farthest above."""
        found = []
        for row in range(length):
            place, first = divmod(row, self.dilation)
            members = -(-(length - first) // self.dilation)
            start = min(max(place - self.kernel_size // 2, 0), members - self.kernel_size)
            keys = range(start, start + self.kernel_size)
            found.append([(first + self.dilation * key, key - place + self.kernel_size - 1) for key in keys])
        return found
