"""Parts shared by deformable convolutions: the taps of a window, and a map read at taps that are moved.

Half types take places and samples in float32: a coordinate in bfloat16 is a whole position off at 512.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._layers import without_autocast


def tap_places(kernel_size: int, dilation: int) -> Tensor:
    """[kernel_size squared, 2]: the places (x, y) of a window's taps around its centre, row by row."""
    side = (torch.arange(kernel_size) - kernel_size // 2) * dilation
    return torch.stack([side.repeat(kernel_size), side.repeat_interleave(kernel_size)], dim=1)


def widened(layer: nn.Linear, x: Tensor) -> Tensor:
    """The output of a layer in float32 at least, for places."""
    wide = torch.promote_types(x.dtype, torch.float32)
    with without_autocast(x):
        return functional.linear(x.to(wide), layer.weight.to(wide), layer.bias.to(wide))


def gathered(maps: Tensor, offsets: Tensor, taps: Tensor, scale: float = 1.0) -> Tensor:
    """Values [P, c, K, n] of maps [P, c, H, W] at `scale` times the taps [K, 2] plus offsets [P, K, 2, n], all (x, y).

    Around each of n positions, bilinear, zero outside the map.
    """
    height, width = maps.shape[2:]
    row, column = (torch.arange(side, device=maps.device, dtype=offsets.dtype) + 0.5 for side in (height, width))
    centre = torch.stack([column.expand(height, -1), row[:, None].expand(-1, width)]).flatten(1)  # [2, n]
    half, step = (
        torch.stack([row.new_full((), value) for value in pair])[:, None]
        for pair in ((width / 2, height / 2), (2 * scale / width, 2 * scale / height))
    )
    places = (centre + (taps.to(offsets.dtype) * scale)[:, :, None]) / half - 1
    grid = (offsets * step + places).transpose(2, 3)
    # on the CPU grid_sample reads wrong memory in half types (docs/upstream.md)
    return functional.grid_sample(maps.to(offsets.dtype), grid, align_corners=False)
