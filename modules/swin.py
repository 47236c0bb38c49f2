"""Window attention of Swin, shifted: each position attends to the positions of its own window alone; local.

Source: Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021. The attention
of one block without norm, residual and the linear layers after it. Inputs are filled with zeros below and at the right
up to whole windows before they are shifted, as published; such positions are keys like others. A map of one window is
not shifted. The shift of 3 is that of the second block of each pair; the first has 0.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_positive
from ctxbench.modules._layers import start_small
from ctxbench.registry import register

from ._windows import HeadAttention, from_windows, padded, relative_places, windows

APART = -100.0  # added to the logits of positions that the shift has brought together, as published


@register(
    "swin",
    title="Shifted window attention (Swin)",
    paper="Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021",
    year=2021,
    family="sparse attention",
    params="4*C**2 + 4*C + (2*window_size - 1)**2*(C//head_width)",
    macs="B*(-(-H//window_size))*(-(-W//window_size))*window_size**2*(4*C**2 + 2*window_size**2*C)",
    complexity="n*C**2 + n*window_size**2*C",
    position_mixing=False,
    reach="min(H, window_size)*min(W, window_size)",
    public_code="microsoft/Swin-Transformer, MIT",
)
class ShiftedWindowAttention(HeadAttention):
    """[B, C, H, W] to [B, C, H, W]; windows of `window_size` squared, moved by `shift_size` down and to the right.

    A head is `head_width` channels wide.
    """

    name = "swin"
    places: Tensor

    def __init__(self, channels: int, *, head_width: int = 32, window_size: int = 7, shift_size: int = 3) -> None:
        super().__init__(channels, head_width)
        check_positive(window_size=window_size)
        if not 0 <= shift_size < window_size:
            raise ValueError(f"shift_size is {shift_size}; it must be from 0 to window_size - 1 ({window_size - 1})")
        self.window_size, self.shift_size = window_size, shift_size
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * window_size - 1) ** 2, self.heads))
        self.register_buffer("places", relative_places(window_size), persistent=False)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        start_small(self.qkv, self.proj)

    def forward(self, x: Tensor) -> Tensor:
        self.check_input(x)
        size = self.window_size
        tokens = padded(x, size)
        batch, height, width = tokens.shape[:3]
        down, across = (self.shift_size if side > size else 0 for side in (height, width))
        bias = self.relative_position_bias_table[self.places].permute(2, 0, 1).contiguous().unsqueeze(0)
        if down or across:
            tokens = tokens.roll((-down, -across), (1, 2))
            apart = self._apart(height, width, down, across)
            bias = bias + bias.new_zeros(apart.shape).masked_fill(apart, APART)
            bias = bias.repeat(batch, 1, 1, 1) if batch > 1 else bias
        out = from_windows(self.attend(windows(tokens, size), bias), size, height, width)
        if down or across:
            out = out.roll((down, across), (1, 2))
        return out[:, : x.size(2), : x.size(3)].permute(0, 3, 1, 2)

    def _apart(self, height: int, width: int, down: int, across: int) -> Tensor:
        """[windows, 1, M M, M M]: pairs of positions that lay in different regions before the shift."""
        rows = self._regions(height, down)[None, :, None, None].expand(-1, -1, width, -1)
        columns = self._regions(width, across)[None, None, :, None].expand(-1, height, -1, -1)
        rows, columns = windows(rows, self.window_size), windows(columns, self.window_size)  # [windows, M M, 1]
        return torch.logical_or(rows != rows.transpose(1, 2), columns != columns.transpose(1, 2)).unsqueeze(1)

    def _regions(self, side: int, shift: int) -> Tensor:
        """[side]: the region of each shifted row: 0, of the last window 1, and 2 where the shift has wrapped around."""
        place = torch.arange(side, device=self.places.device)
        if not shift:
            return torch.zeros_like(place)
        return (place >= side - self.window_size).long() + (place >= side - shift)
