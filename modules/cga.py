"""Cascaded group attention: in windows, each head works on its own channels and on what the head before it found.

Source: Liu et al., EfficientViT: Memory Efficient Vision Transformer with Cascaded Group Attention, CVPR 2023. As
published, but for the weight of the last norm, which starts at one: the released networks start it at zero inside a
residual. Inputs are padded with zeros below and at the right to whole windows; such positions are keys like others.
Local: nothing outside the window is seen.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_heads, check_input, check_odd, check_positive
from ctxbench.modules._layers import depthwise, gradient_in_order, with_norm
from ctxbench.registry import register

from ._windows import from_windows, padded, windows

KERNELS = (7, 5, 3)  # of the first heads; later ones have the last


@register(
    "cga",
    title="Cascaded group attention (EfficientViT)",
    paper="Liu et al., EfficientViT: Memory Efficient Vision Transformer with Cascaded Group Attention, CVPR 2023",
    year=2023,
    family="sparse attention",
    params="(C + 2*heads)*(2*key_dim + C//heads) + C**2 + 2*C + heads*window_size**2 + key_dim*(2*heads"
    " + (heads*kernel_size**2 if kernel_size > 0 else 49 if heads == 1 else 56 + 9*heads))",
    macs="B*(-(-H//window_size))*(-(-W//window_size))*window_size**2*("
    "C*(2*key_dim + C//heads) + window_size**2*(heads*key_dim + C) + C**2 + 4*heads*key_dim + 2*C"
    " + key_dim*(heads*kernel_size**2 if kernel_size > 0 else 49 if heads == 1 else 56 + 9*heads))",
    complexity="n*C**2 + n*window_size**2*C",
    position_mixing=False,
    reach="min(H, window_size)*min(W, window_size)",
    public_code="microsoft/Cream, MIT",
)
class CascadedGroupAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; `heads` of C / `heads` channels, with queries and keys of `key_dim`.

    Windows are `window_size` squared. The queries' convolution is `kernel_size` squared, odd, or 0: 7, 5, 3, 3 by head.
    """

    places: Tensor

    def __init__(
        self, channels: int, *, heads: int = 4, key_dim: int = 16, window_size: int = 7, kernel_size: int = 5
    ) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, key_dim=key_dim, window_size=window_size)
        check_heads("cga", channels, heads)
        kernels = [kernel_size or KERNELS[min(head, len(KERNELS) - 1)] for head in range(heads)]
        check_positive(kernel_size=kernels[0])
        check_odd("cga", kernel_size=kernels[0])
        width = channels // heads
        self.channels, self.key_dim, self.width, self.window_size = channels, key_dim, width, window_size
        self.qkvs = nn.ModuleList(with_norm(nn.Conv2d(width, 2 * key_dim + width, 1, bias=False)) for _ in kernels)
        self.dws = nn.ModuleList(with_norm(depthwise(key_dim, kernel, bias=False)) for kernel in kernels)
        self.proj = nn.Sequential(nn.ReLU(), with_norm(nn.Conv2d(channels, channels, 1, bias=False)))
        self.attention_biases = nn.Parameter(torch.zeros(heads, window_size**2))
        row, column = torch.arange(window_size**2) // window_size, torch.arange(window_size**2) % window_size
        apart = [(each[:, None] - each).abs() for each in (row, column)]
        self.register_buffer("places", apart[0] * window_size + apart[1], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "cga")
        size = self.window_size
        tokens = padded(x, size)
        maps = torch.unflatten(
            windows(tokens, size).transpose(1, 2).contiguous(), 2, (size, size)
        )  # [B H'/M W'/M, C, M, M]
        biases = self.attention_biases[:, self.places]
        found: list[Tensor] = []
        for part, qkv, dw, bias in zip(maps.chunk(len(self.qkvs), dim=1), self.qkvs, self.dws, biases, strict=True):
            features = gradient_in_order(qkv(part + found[-1] if found else part))
            query, key, value = features.split([self.key_dim, self.key_dim, self.width], dim=1)
            query = gradient_in_order(dw(query)).flatten(2).transpose(1, 2) * self.key_dim**-0.5
            affinity = torch.softmax(query @ key.flatten(2) + bias, dim=2)
            found.append(torch.unflatten(value.flatten(2) @ affinity.transpose(1, 2), 2, (size, size)))
        out = gradient_in_order(self.proj(torch.cat(found, dim=1))).flatten(2).transpose(1, 2)
        return from_windows(out, size, *tokens.shape[1:3])[:, : x.size(2), : x.size(3)].permute(0, 3, 1, 2)
