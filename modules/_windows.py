"""Parts shared by blocks of windowed attention: windows and their inverse, bias by relative place, attention.

Tensors have four dimensions at most, which more compilers of devices take.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive


def padded(x: Tensor, size: int) -> Tensor:
    """[B, C, H, W] as [B, H', W', C], with zeros below and at the right up to multiples of `size`."""
    down, across = -x.size(2) % size, -x.size(3) % size
    x = x.permute(0, 2, 3, 1)
    return functional.pad(x, (0, 0, 0, across, 0, down)) if down or across else x.contiguous()


def windows(x: Tensor, size: int) -> Tensor:
    """[B, H, W, C] to [B H/M W/M, M M, C]: the squares of `size` x `size` positions, row by row."""
    batch, height, width, channels = x.shape
    rows = x.reshape(batch * (height // size), size, width // size, size * channels)
    return rows.transpose(1, 2).reshape(-1, size * size, channels)


def from_windows(tokens: Tensor, size: int, height: int, width: int) -> Tensor:
    """The inverse of `windows`, to [B, height, width, C]."""
    channels = tokens.size(2)
    rows = tokens.reshape(-1, width // size, size, size * channels)
    return rows.transpose(1, 2).reshape(-1, height, width, channels)


def relative_places(size: int) -> Tensor:
    """[M M, M M]: number of the difference of two places of a window, first less second, of (2 M - 1)^2."""
    row, column = torch.arange(size).repeat_interleave(size), torch.arange(size).repeat(size)
    rows, columns = (each.unsqueeze(1) - each + size - 1 for each in (row, column))
    return rows * (2 * size - 1) + columns


class HeadAttention(nn.Module):
    """Multi-head softmax attention of tokens in groups; a head is `head_width` channels wide."""

    name = ""

    def __init__(self, channels: int, head_width: int) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; {self.name} needs a multiple of head_width ({head_width})")
        self.channels, self.heads = channels, channels // head_width
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def check_input(self, x: Tensor) -> None:
        check_input(x, self.channels, self.name)

    def split(self, tokens: Tensor) -> Tensor:
        """[P, m, C] to [P, heads, m, C / heads]."""
        return torch.unflatten(tokens, 2, (self.heads, -1)).transpose(1, 2)

    def attend(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Attention in each of P groups, [P, m, C] to the same; `bias` [P or 1, heads, m, m] is added to its logits."""
        query, key, value = map(self.split, self.qkv(tokens).chunk(3, dim=2))
        if torch.onnx.is_in_onnx_export():  # the exporter takes no strided views where there is a bias
            query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        out: Tensor = self.proj(context.transpose(1, 2).flatten(2))
        return out
