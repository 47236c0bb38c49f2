"""Non-local block: every position sums the values of all others, weighed by one of four pairwise functions.

Source: Wang et al., Non-local Neural Networks, CVPR 2018. Pooling follows the projections; its ceil mode differs from
the public code at odd sizes alone, and takes H or W of 1. In the mode `concatenation` the product with the joined
vector is the sum of two products, so that no [B, 2d, n, m] tensor is made. The block starts as the identity.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.modules._checks import check_choice, check_input, reduced
from ctxbench.modules._layers import gradient_in_order
from ctxbench.registry import register

Mode = Literal["embedded_gaussian", "gaussian", "dot_product", "concatenation"]


@register(
    "non_local",
    title="Non-local block (NL)",
    paper="Wang et al., Non-local Neural Networks, CVPR 2018",
    year=2018,
    family="attention",
    params=(
        "(2*C*(C//reduction) + C//reduction if mode == 'gaussian' else 4*C*(C//reduction) + 3*(C//reduction)) + 3*C"
        " + (2*(C//reduction) if mode == 'concatenation' else 0)"
    ),
    macs=(
        "(2 if mode == 'gaussian' else 4)*N*C*(C//reduction) + N*C + B*n*(((H + 1)//2)*((W + 1)//2) if sub_sample"
        " else n)*((C if mode == 'gaussian' else 0 if mode == 'concatenation' else C//reduction) + C//reduction)"
        " + ((N + B*(((H + 1)//2)*((W + 1)//2) if sub_sample else n))*(C//reduction) if mode == 'concatenation' else 0)"
    ),
    complexity="n**2*C + n*C**2",
    public_code="AlexHex7/Non-local_pytorch and mmcv, Apache-2.0; the authors', CC BY-NC 4.0",
)
class NonLocal(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with width d = C // `reduction`.

    `mode` is the pairwise function; `scale` divides the logits of `embedded_gaussian` by sqrt(d); with `sub_sample`
    keys and values are max-pooled 2 x 2.
    """

    def __init__(
        self,
        channels: int,
        *,
        mode: Literal["embedded_gaussian", "gaussian", "dot_product", "concatenation"] = "embedded_gaussian",
        reduction: int = 2,
        sub_sample: bool = False,
        scale: bool = True,
    ) -> None:
        super().__init__()
        check_choice("mode", mode, get_args(Mode))
        width = reduced("non_local", channels, reduction)
        self.channels, self.width, self.mode, self.sub_sample, self.scale = channels, width, mode, sub_sample, scale
        projects = mode != "gaussian"
        self.query = nn.Conv2d(channels, width, 1) if projects else nn.Identity()
        self.key = nn.Conv2d(channels, width, 1) if projects else nn.Identity()
        self.value = nn.Conv2d(channels, width, 1)
        self.weight = nn.Parameter(torch.empty(2, 1, width)) if mode == "concatenation" else None
        self.output = nn.Conv2d(width, channels, 1)
        self.norm = nn.BatchNorm2d(channels)
        for layer in (self.query, self.key, self.value, self.output):
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # there is one
        if self.weight is not None:
            nn.init.normal_(self.weight, std=0.01)
        nn.init.zeros_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "non_local")
        query = self.query(x).flatten(2)  # [B, d, n]
        key, value = self._pooled(self.key(x)).flatten(2), self._pooled(self.value(x)).flatten(2)  # [B, d, m]
        context = self._context(query, key, value)  # [B, d, n]
        out: Tensor = x + gradient_in_order(self.norm(self.output(torch.unflatten(context, 2, x.shape[2:]))))
        return out

    def _pooled(self, image: Tensor) -> Tensor:
        return functional.max_pool2d(image, 2, ceil_mode=True) if self.sub_sample else image

    def _context(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.weight is not None:
            first, second = (part.expand(query.size(0), -1, -1) for part in self.weight)
            affinity = torch.relu(torch.bmm(first, query).transpose(1, 2) + torch.bmm(second, key))  # [B, n, m]
            return _read(affinity, value) / key.size(2)
        if self.mode == "dot_product":
            return _read(torch.bmm(query.transpose(1, 2), key), value) / key.size(2)
        if self.mode == "gaussian":
            # Sums over C of squares: in float16 they overflow.
            wide = torch.promote_types(query.dtype, torch.float32)
            query, key = query.to(wide), key.to(wide)
        if self.mode == "embedded_gaussian" and self.scale:
            query = query / self.width**0.5
        affinity = torch.softmax(torch.bmm(query.transpose(1, 2), key), dim=2).to(value.dtype)
        return _read(affinity, value)


def _read(affinity: Tensor, value: Tensor) -> Tensor:
    """[B, n, m] and [B, d, m] to [B, d, n]; so the gradient of the affinity is contiguous and not copied."""
    return torch.bmm(affinity, value.transpose(1, 2)).transpose(1, 2).contiguous()
