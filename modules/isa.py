"""Interlaced sparse self-attention: first among positions that are a block apart, then inside each block.

Source: Huang et al., Interlaced Sparse Self-Attention for Semantic Segmentation, arXiv:1907.12273, 2019. Inputs are
padded with zeros to multiples of the block; as published, the padded positions take part.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive, reduced
from ctxbench.modules._norm import conv_norm_relu
from ctxbench.registry import register


class Attention(nn.Module):
    """Self-attention inside each of G groups of positions, [G, C, h, w] to [G, C, h, w]."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.query = nn.Sequential(*conv_norm_relu(channels, width), *conv_norm_relu(width, width))
        self.key = nn.Sequential(*conv_norm_relu(channels, width), *conv_norm_relu(width, width))
        self.value = nn.Conv2d(channels, channels, 1, bias=False)
        self.output = conv_norm_relu(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (project(x).flatten(2) for project in (self.query, self.key, self.value))
        logits = torch.bmm(query.transpose(1, 2), key) / self.width**0.5
        context = torch.bmm(value, torch.softmax(logits, dim=2).transpose(1, 2))
        out: Tensor = self.output(torch.unflatten(context, 2, x.shape[2:]))
        return out


@register(
    "isa",
    title="Interlaced sparse self-attention (ISA)",
    paper="Huang et al., Interlaced Sparse Self-Attention for Semantic Segmentation, arXiv:1907.12273, 2019",
    year=2019,
    family="sparse attention",
    params=("2*(2*(C*(C//reduction) + (C//reduction)**2 + 4*(C//reduction)) + 2*C**2 + 2*C) + 2*C**2 + 2*C"),
    macs=(
        "B*(-(-H//block)*block)*(-(-W//block)*block)*(2*(2*(C*(C//reduction) + (C//reduction)**2) + 2*C**2)"
        " + ((-(-H//block))*(-(-W//block)) + block**2)*(C//reduction + C) + 2*(4*(C//reduction) + C))"
        " + 2*N*C**2 + N*C"
    ),
    complexity="n*(n/block**2 + block**2)*C + n*C**2",
    public_code="openseg-group/openseg.pytorch, MIT",
)
class InterlacedAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; blocks are `block` x `block`, queries and keys have C // `reduction` channels."""

    def __init__(self, channels: int, *, block: int = 8, reduction: int = 2) -> None:
        super().__init__()
        width = reduced("isa", channels, reduction)
        check_positive(block=block)
        self.channels, self.block = channels, block
        self.long, self.short = Attention(channels, width), Attention(channels, width)
        self.output = conv_norm_relu(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "isa")
        height, width = int(x.size(2)), int(x.size(3))
        down, across = -height % self.block, -width % self.block
        top, left = down // 2, across // 2
        # Without padding, `pad` would copy.
        padded = functional.pad(x, (left, across - left, top, down - top)) if down or across else x
        context = self._interlaced(padded)[:, :, top : top + height, left : left + width]
        out: Tensor = self.output(torch.cat([x, context], dim=1))
        return out

    def _interlaced(self, image: Tensor) -> Tensor:
        """Both attentions on an image [B, C, rows * P, columns * P], P being the block."""
        rows, columns = image.size(2) // self.block, image.size(3) // self.block
        cells = torch.unflatten(torch.unflatten(image, 3, (columns, self.block)), 2, (rows, self.block))
        cells = cells.permute(0, 3, 5, 1, 2, 4)  # [B, P, P, C, rows, columns]
        cells = torch.unflatten(self.long(cells.flatten(0, 2)), 0, (-1, self.block, self.block))
        cells = cells.permute(0, 4, 5, 3, 1, 2)  # [B, rows, columns, C, P, P]
        cells = torch.unflatten(self.short(cells.flatten(0, 2)), 0, (-1, rows, columns))
        return cells.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
