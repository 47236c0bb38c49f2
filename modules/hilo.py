"""HiLo attention: some heads attend within small windows, the others to the means of these windows.

Source: Pan et al., Fast Vision Transformers with HiLo Attention, NeurIPS 2022; with the share of heads and the biases
of the released networks. Inputs are padded with zeros below and at the right to whole windows, as published for dense
prediction; a mean counts these zeros. No mixing of the two parts after it, no residual.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_positive
from ctxbench.modules._layers import start_small
from ctxbench.registry import register

from ._windows import from_windows, heads_of, padded, windows


@register(
    "hilo",
    title="HiLo attention (LITv2)",
    paper="Pan et al., Fast Vision Transformers with HiLo Attention, NeurIPS 2022",
    year=2022,
    family="sparse attention",
    params="4*C**2 + C + (3*C if qkv_bias else 0)"
    " - 2*head_width*(C//head_width if window_size == 1 else -ceil(-(C//head_width)*alpha))"
    "*(C - head_width*(C//head_width if window_size == 1 else -ceil(-(C//head_width)*alpha)))",
    macs="B*(-(-H//window_size))*(-(-W//window_size))*(2*window_size**2*C*(2*C + window_size**2)"
    " + 2*head_width*(C//head_width if window_size == 1 else -ceil(-(C//head_width)*alpha))*(C + window_size**2*("
    "head_width*(C//head_width if window_size == 1 else -ceil(-(C//head_width)*alpha))"
    " + (-(-H//window_size))*(-(-W//window_size)) - 2*C - window_size**2))"
    " + (C if window_size > 1 and -ceil(-(C//head_width)*alpha) > 0 else 0))",
    complexity="n**2*C/window_size**2 + n*C**2",
    position_mixing="window_size == 1 or alpha > 0",
    reach="n if window_size == 1 or -ceil(-(C//head_width)*alpha) > 0 else min(H, window_size)*min(W, window_size)",
    public_code="ziplab/LITv2, Apache-2.0",
)
class HiLoAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the share `alpha` of the heads, rounded down, sees means of `window_size` squared.

    A head is `head_width` channels wide. With windows of one position all heads attend to all positions.
    """

    def __init__(
        self, channels: int, *, head_width: int = 32, window_size: int = 2, alpha: float = 0.9, qkv_bias: bool = True
    ) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width, window_size=window_size)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; hilo needs a multiple of head_width ({head_width})")
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha is {alpha}; it must be from 0 to 1")
        heads = channels // head_width
        self.channels, self.window_size = channels, window_size
        self.low = heads if window_size == 1 else int(heads * alpha)
        self.high = heads - self.low
        if low := self.low * head_width:
            self.l_q, self.l_kv = nn.Linear(channels, low, qkv_bias), nn.Linear(channels, 2 * low, qkv_bias)
            self.l_proj = nn.Linear(low, low)
        if high := self.high * head_width:
            self.h_qkv, self.h_proj = nn.Linear(channels, 3 * high, qkv_bias), nn.Linear(high, high)
        start_small(*(layer for layer in self.modules() if isinstance(layer, nn.Linear)))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "hilo")
        tokens = padded(x, self.window_size)  # [B, H', W', C]
        groups = windows(tokens, self.window_size)
        parts = []
        if self.high:
            within = self.h_proj(_attend(*self.h_qkv(groups).chunk(3, dim=2), heads=self.high))
            parts.append(from_windows(within, self.window_size, *tokens.shape[1:3]))
        if self.low:
            means = groups.mean(1) if self.window_size > 1 else groups.flatten(0, 1)
            key, value = self.l_kv(torch.unflatten(means, 0, (x.size(0), -1))).chunk(2, dim=2)
            context = self.l_proj(_attend(self.l_q(tokens.flatten(1, 2)), key, value, heads=self.low))
            parts.append(torch.unflatten(context, 1, tokens.shape[1:3]))
        return torch.cat(parts, dim=3)[:, : x.size(2), : x.size(3)].permute(0, 3, 1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, *, heads: int) -> Tensor:
    """Attention of tokens [P, n, c] to others [P, m, c] in heads."""
    query, key, value = (heads_of(each, heads) for each in (query, key, value))
    context = functional.scaled_dot_product_attention(query, key, value)
    return context.transpose(1, 2).flatten(2)
