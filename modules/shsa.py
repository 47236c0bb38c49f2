"""Single-head self-attention: one head on a part of the channels, which the others pass by.

Source: Yun, Ro, SHViT: Single-Head Vision Transformer with Memory Efficient Macro Design, CVPR 2024. As published, but
for the weight of the last norm, which starts at one: the released networks start it at zero inside a residual. No
residual. It holds a map of all pairs: few fused kernels take queries and values of such widths.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import gradient_in_order, with_norm
from ctxbench.registry import register


@register(
    "shsa",
    title="Single-head self-attention (SHViT)",
    paper="Yun, Ro, SHViT: Single-Head Vision Transformer with Memory Efficient Macro Design, CVPR 2024",
    year=2024,
    family="attention",
    params="(partial_dim if partial_dim else 3*C//14)**2 + (partial_dim if partial_dim else 3*C//14)*(2*qk_dim + 4)"
    " + 4*qk_dim + C**2 + 2*C",
    macs="N*((partial_dim if partial_dim else 3*C//14)**2 + (partial_dim if partial_dim else 3*C//14)*(2*qk_dim + 2))"
    " + N*(C**2 + 3*qk_dim + C) + B*n**2*(qk_dim + (partial_dim if partial_dim else 3*C//14))",
    complexity="n**2*C + n*C**2",
    public_code="ysj9909/SHViT, MIT",
)
class SingleHeadSelfAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]: the first `partial_dim` channels attend, queries and keys are `qk_dim` wide.

    A `partial_dim` of 0 is 3 C // 14, as in all released networks.
    """

    def __init__(self, channels: int, *, partial_dim: int = 0, qk_dim: int = 16) -> None:
        super().__init__()
        check_positive(channels=channels, qk_dim=qk_dim)
        width = partial_dim or 3 * channels // 14
        if not 1 <= width <= channels:
            raise ValueError(f"shsa attends with {width} of {channels} channels; it needs from 1 to all")
        self.channels, self.width, self.qk_dim = channels, width, qk_dim
        self.pre_norm = nn.GroupNorm(1, width)
        self.qkv = with_norm(nn.Conv2d(width, 2 * qk_dim + width, 1, bias=False))
        self.proj = nn.Sequential(nn.ReLU(), with_norm(nn.Conv2d(channels, channels, 1, bias=False)))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "shsa")
        maps = self.qkv(self.pre_norm(x[:, : self.width])).flatten(2)
        query, key, value = maps.split([self.qk_dim, self.qk_dim, self.width], dim=1)  # [B, ., n]
        affinity = torch.softmax((query * self.qk_dim**-0.5).transpose(1, 2) @ key, dim=2)
        context = torch.unflatten(value @ affinity.transpose(1, 2), 2, x.shape[2:])
        y: Tensor = gradient_in_order(self.proj(torch.cat([context, x[:, self.width :]], dim=1)))
        return y
