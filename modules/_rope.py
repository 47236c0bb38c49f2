"""Rotary position embedding of images: half of the channel pairs turn with the row, the other half with the column.

Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021, in two dimensions.
"""

import torch
from torch import Tensor


def angles(frequencies: Tensor, height: int, width: int) -> Tensor:
    """The angles [2M, H * W] of M frequencies: first those of the rows, then those of the columns."""
    rows = torch.arange(height, device=frequencies.device, dtype=frequencies.dtype)
    columns = torch.arange(width, device=frequencies.device, dtype=frequencies.dtype)
    of_rows = (frequencies[:, None] * rows)[:, :, None].expand(-1, -1, width).flatten(1)
    of_columns = (frequencies[:, None] * columns)[:, None, :].expand(-1, height, -1).flatten(1)
    return torch.cat([of_rows, of_columns])


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Channels [..., 2P, n] with each pair (2t, 2t + 1) turned by the angle of t; cosine and sine are [P, n]."""
    pairs = torch.unflatten(x, -2, (-1, 2))
    even, odd = pairs.unbind(-2)  # [..., P, n] each
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-2).flatten(-3, -2)
