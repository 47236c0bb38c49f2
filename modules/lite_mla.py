"""Multi-scale linear attention: linear attention with ReLU features, beside it the same of maps seen through a window.

Source: Cai et al., EfficientViT: Lightweight Multi-Scale Attention for High-Resolution Dense Prediction, ICCV 2023.
Heads 32 channels wide, as released in all but the smallest networks; a width that does not divide the channels is
refused, where the public version drops channels. Always in the linear form, which the public version leaves for the
equal quadratic one on maps of few positions. No residual. Half types and autocast take the attention in float32.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import depthwise, gradient_in_order, start_small, without_autocast
from ctxbench.registry import register

OFFSET = 1e-15  # keeps the denominator above zero, as published


@register(
    "lite_mla",
    title="Multi-scale linear attention (LiteMLA)",
    paper="Cai et al., EfficientViT: Lightweight Multi-Scale Attention for Dense Prediction, ICCV 2023",
    year=2023,
    family="linear attention",
    params="5*C**2 + 3*scale**2*C + 3*C*dim + 2*C",
    macs="N*(5*C**2 + 3*scale**2*C + 3*C*dim + 4*C*dim + 2*C) + N*C",
    complexity="n*C**2",
    public_code="mit-han-lab/efficientvit, Apache-2.0",
)
class MultiScaleLinearAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; heads are `dim` channels wide, the window is `scale` x `scale`."""

    def __init__(self, channels: int, *, dim: int = 32, scale: int = 5) -> None:
        super().__init__()
        check_positive(channels=channels, dim=dim, scale=scale)
        if channels % dim:
            raise ValueError(f"channels is {channels}; lite_mla needs a multiple of dim ({dim})")
        check_odd("lite_mla", scale=scale)
        self.channels, self.dim = channels, dim
        width = 3 * channels
        self.qkv = nn.Sequential(OrderedDict(conv=nn.Conv2d(channels, width, 1, bias=False)))
        per_head = nn.Conv2d(width, width, 1, groups=width // dim, bias=False)
        self.aggreg = nn.ModuleList([nn.Sequential(depthwise(width, scale, bias=False), per_head)])
        output = nn.Conv2d(2 * channels, channels, 1, bias=False)
        self.proj = nn.Sequential(OrderedDict(conv=output, norm=nn.BatchNorm2d(channels)))
        start_small(*(layer for layer in self.modules() if isinstance(layer, nn.Conv2d)))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "lite_mla")
        query, key, value = self._heads(x)
        with without_autocast(x):
            memory = torch.matmul(value, key.transpose(2, 3))  # [B, heads, dim, dim]
            weights = torch.matmul(key.sum(3).unsqueeze(2), query) + OFFSET  # [B, heads, 1, n]
            context = (torch.matmul(memory, query) / weights).to(x.dtype)
        out: Tensor = gradient_in_order(self.proj(torch.unflatten(context.flatten(1, 2), 2, x.shape[2:])))
        return out

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, C, H, W] to queries, keys and values [B, heads, dim, n], each in memory of its own."""
        maps = self.qkv(x)
        maps = torch.cat([maps, self.aggreg[0](maps)], dim=1)  # [B, 6 C, H, W]: q, k and v of head after head
        wide = torch.promote_types(x.dtype, torch.float32)
        query, key, value = torch.unflatten(maps.flatten(2), 1, (-1, 3, self.dim)).unbind(2)
        return torch.relu(query).to(wide), torch.relu(key).to(wide), value.contiguous().to(wide)
