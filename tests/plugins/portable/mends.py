"""Both ways of writing what `ctxbench.plugins.portable.mends` knows a way out of."""

import torch
from torch import Tensor
from torch.nn.functional import relu6, scaled_dot_product_attention


def windows(x: Tensor, side: int) -> Tensor:
    """Windows of a map (B, H, W, C) as (B H W / side^2, side, side, C)."""
    batch, height, width, channels = x.shape
    six = x.view(batch, height // side, side, width // side, side, channels)
    return six.permute(0, 1, 3, 2, 4, 5).reshape(-1, side, side, channels)


def windows_of_four_axes(x: Tensor, side: int) -> Tensor:
    """The same: the rows of a window and the windows of a row change places, and all that lies beside is merged."""
    batch, height, width, channels = x.shape
    rows = x.reshape(batch * height // side, side, width // side, side * channels)
    return rows.transpose(1, 2).reshape(-1, side, side, channels)


def heads(packed: Tensor, number: int) -> Tensor:
    """Attention of queries, keys and values that are packed (B, N, 3 C), with this number of heads."""
    batch, length, width = packed.shape
    q, k, v = packed.view(batch, length, 3, number, width // 3 // number).permute(2, 0, 3, 1, 4)
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width // 3)


def heads_of_four_axes(packed: Tensor, number: int) -> Tensor:
    """The same from three slices of the last axis."""
    batch, length, width = packed.shape
    q, k, v = (part.reshape(batch, length, number, -1).transpose(1, 2) for part in packed.chunk(3, -1))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width // 3)


def unit_clamp(x: Tensor) -> Tensor:
    """Values between 0 and 1."""
    return x.clamp(0, 1)


def unit_clamp_by_relu6(x: Tensor) -> Tensor:
    """The same by an activation that is an operator everywhere."""
    return relu6(6 * x) / 6


def repeated(x: Tensor, number: int) -> Tensor:
    """A vector (B, 1, C) at each of N positions, which takes no memory in PyTorch."""
    return x.expand(-1, number, -1)


def repeated_by_cat(x: Tensor, number: int) -> Tensor:
    """The same as a copy for each position."""
    return torch.cat([x] * number, 1)


# What is refused, and what to write instead, in the order of `MENDS`.
WRITTEN = (
    (windows, windows_of_four_axes),
    (heads, heads_of_four_axes),
    (unit_clamp, unit_clamp_by_relu6),
    (repeated, repeated_by_cat),
)
