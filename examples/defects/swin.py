"""Swin of timm attends across the borders of the map where a side is no multiple of the window."""

import torch
from timm.models.swin_transformer import SwinTransformerBlock

block = SwinTransformerBlock(32, (15, 14), num_heads=1, window_size=7, shift_size=3).eval()
x = torch.randn(1, 15, 14, 32)
other = x.clone()
other[:, 14] += 1
with torch.no_grad():
    moved = float((block(other) - block(x))[0, 0].abs().max())
print("the first row, where the last of 15 rows changes, moves by", moved)
assert moved > 1e-3
