"""Parts shared by deformable convolutions: the taps of a window, and a map read at taps that are moved.

Half types take places and samples in float32: a coordinate in bfloat16 is a whole position off at 512.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_odd, check_positive
from ctxbench.modules._layers import ChannelLinear, without_autocast


def tap_places(kernel_size: int, dilation: int) -> Tensor:
    """[kernel_size squared, 2]: the places (x, y) of a window's taps around its centre, row by row."""
    side = (torch.arange(kernel_size) - kernel_size // 2) * dilation
    return torch.stack([side.repeat(kernel_size), side.repeat_interleave(kernel_size)], dim=1)


def taps_by_column(
    name: str, channels: int, group_width: int, kernel_size: int, dilation: int, remove_center: bool
) -> Tensor:
    """The same taps column by column, with or without the centre; ValueError with a sentence for a wrong size."""
    check_positive(channels=channels, group_width=group_width, kernel_size=kernel_size, dilation=dilation)
    check_odd(name, kernel_size=kernel_size)
    if channels % group_width:
        raise ValueError(f"channels is {channels}; {name} needs a multiple of group_width ({group_width})")
    if remove_center and kernel_size == 1:
        raise ValueError("kernel_size is 1; with remove_center it must be at least 3")
    taps = tap_places(kernel_size, dilation).flip(1)
    return taps[(taps != 0).any(1)] if remove_center else taps


def widened(layer: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """The output of a layer in float32 at least, for places."""
    wide = torch.promote_types(x.dtype, torch.float32)
    assert layer.bias is not None
    if x.dtype == layer.weight.dtype == wide:
        with without_autocast(x):
            made: Tensor = layer(x)  # counters by layers see it, as in the public classes
        return made
    x, weight, bias = x.to(wide), layer.weight.to(wide), layer.bias.to(wide)
    with without_autocast(x):
        if isinstance(layer, nn.Conv2d):
            return functional.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        if isinstance(layer, ChannelLinear):
            return functional.conv2d(x, weight[:, :, None, None], bias)
        return functional.linear(x, weight, bias)


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


def weighed(x: Tensor, moved: Tensor, masks: Tensor, taps: Tensor, scale: float) -> Tensor:
    """A map [B, C, H, W], read at taps moved by [B g, 2 K, n] and summed by weights [B g, K, n]: [B, C, H, W]."""
    groups = masks.size(0) // x.size(0)
    maps = x.reshape(-1, x.size(1) // groups, *x.shape[2:])
    read = gathered(maps, torch.unflatten(moved, 1, (-1, 2)), taps, scale)
    return (read * masks[:, None]).sum(2).reshape(x.shape).to(x.dtype)
