"""Bi-level routing attention: each window of the map chooses a few windows, and its positions attend to theirs.

Source: Zhu et al., BiFormer: Vision Transformer with Bi-Level Routing Attention, CVPR 2023. The published form of the
released weights: a fixed number of windows, so that they grow with the map. Inputs are padded with zeros below and at
the right to whole windows; such positions are keys like others. No gradient flows through the choice. No residual.
Half types compare the windows in float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_input, check_odd, check_positive
from ctxbench.modules._layers import depthwise, start_small, without_autocast
from ctxbench.registry import register

from ._windows import from_windows, heads_of, padded, windows


@register(
    "bra",
    title="Bi-level routing attention (BiFormer)",
    paper="Zhu et al., BiFormer: Vision Transformer with Bi-Level Routing Attention, CVPR 2023",
    year=2023,
    family="sparse attention",
    params="4*C**2 + 4*C + (side_dwconv**2 + 1)*C",
    macs="B*(-(-H//n_win))*(-(-W//n_win))*n_win**2*("
    "4*C**2 + side_dwconv**2*C + 2*topk*(-(-H//n_win))*(-(-W//n_win))*C) + B*n_win**4*C + 2*B*n_win**2*C",
    complexity="n**2*C*topk/n_win**2 + n*C**2",
    reach="by content",
    public_code="rayleizhu/BiFormer, MIT",
)
class BiLevelRoutingAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `n_win` squared windows, of which each chooses `topk`.

    A head is `head_width` channels wide. Beside it, a depthwise convolution of the values, `side_dwconv` squared, odd.
    """

    def __init__(
        self, channels: int, *, head_width: int = 32, n_win: int = 7, topk: int = 4, side_dwconv: int = 5
    ) -> None:
        super().__init__()
        check_positive(channels=channels, head_width=head_width, n_win=n_win, topk=topk, side_dwconv=side_dwconv)
        check_odd("bra", side_dwconv=side_dwconv)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; bra needs a multiple of head_width ({head_width})")
        if topk > n_win**2:
            raise ValueError(f"topk is {topk}; it must be at most n_win squared ({n_win**2})")
        self.channels, self.heads, self.n_win, self.topk = channels, channels // head_width, n_win, topk
        self.qkv = nn.ModuleDict({"qkv": nn.Linear(channels, 3 * channels)})
        self.lepe, self.wo = depthwise(channels, side_dwconv), nn.Linear(channels, channels)
        start_small(self.qkv["qkv"], self.lepe, self.wo)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "bra")
        tokens = padded(x, self.n_win)  # [B, H', W', C]
        groups = windows(tokens, tokens.size(1) // self.n_win, tokens.size(2) // self.n_win)  # [B S S, w, C]
        query, key, value = self.qkv["qkv"](groups).chunk(3, dim=2)
        chosen = self._chosen(groups, query, key)
        keys, values = (each[chosen].reshape(len(groups), -1, self.channels) for each in (key, value))
        query, keys, values = (heads_of(each, self.heads) for each in (query, keys, values))
        context = functional.scaled_dot_product_attention(query, keys, values, scale=self.channels**-0.5)
        near = self.lepe(self._map(value, tokens).permute(0, 3, 1, 2).contiguous()).permute(0, 2, 3, 1)
        context = self._map(context.transpose(1, 2).flatten(2), tokens)
        out: Tensor = self.wo(context + near)
        return out[:, : x.size(2), : x.size(3)].permute(0, 3, 1, 2)

    def _map(self, groups: Tensor, tokens: Tensor) -> Tensor:
        """Windows [B S S, w, C] as the map of `tokens` [B, H', W', C]."""
        _, height, width, _ = tokens.shape
        return from_windows(groups, height // self.n_win, height, width, wide=width // self.n_win)

    def _chosen(self, groups: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """[B S S topk]: the windows that each chooses, by the product of the means over its queries and their keys."""
        with torch.no_grad():
            wide = torch.promote_types(query.dtype, torch.float32)
            means = [query.mean(1), key.mean(1)]
            with without_autocast(query):
                if wide is not query.dtype:  # the layer of the means, before a rounding that would decide
                    weight, bias = (part[: 2 * self.channels].to(wide) for part in self.qkv["qkv"].parameters())
                    means = [*functional.linear(groups.mean(1, dtype=wide), weight, bias).chunk(2, dim=1)]
                means = [torch.unflatten(each, 0, (-1, self.n_win**2)) for each in means]
                found = (means[0] @ means[1].transpose(1, 2)).topk(self.topk, dim=2).indices  # [B, S S, topk]
            first = torch.arange(0, found.size(0) * self.n_win**2, self.n_win**2, device=found.device)
            return (found + first[:, None, None]).flatten()
