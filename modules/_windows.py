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


def windows(x: Tensor, tall: int, wide: int | None = None) -> Tensor:
    """[B, H, W, C] to [B H/M W/N, M N, C]: windows of `tall` x `wide` positions; without `wide`, squares."""
    wide = wide or tall
    batch, height, width, channels = x.shape
    rows = x.reshape(batch * (height // tall), tall, width // wide, wide * channels)
    return rows.transpose(1, 2).reshape(-1, tall * wide, channels)


def from_windows(tokens: Tensor, tall: int, height: int, width: int, *, wide: int | None = None) -> Tensor:
    """The inverse of `windows`, to [B, height, width, C]."""
    wide = wide or tall
    rows = tokens.reshape(-1, width // wide, tall, wide * tokens.size(2))
    return rows.transpose(1, 2).reshape(-1, height, width, tokens.size(2))


def heads_of(tokens: Tensor, heads: int) -> Tensor:
    """[P, m, C] to [P, heads, m, C / heads]."""
    return torch.unflatten(tokens, 2, (heads, -1)).transpose(1, 2)


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

    def attend(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Attention in each of P groups, [P, m, C] to the same; `bias` [P or 1, heads, m, m] is added to its logits."""
        query, key, value = (heads_of(each, self.heads) for each in self.qkv(tokens).chunk(3, dim=2))
        if torch.onnx.is_in_onnx_export():  # the exporter takes no strided views where there is a bias
            query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        out: Tensor = self.proj(context.transpose(1, 2).flatten(2))
        return out
