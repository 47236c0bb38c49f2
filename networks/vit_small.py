"""ViT-S/16 with the module in place of attention in each of its 12 blocks: where linear attentions are tried.

Source: Touvron et al., Training data-efficient image transformers, ICML 2021 (DeiT-S), without a class token: the mean
over the tokens is classified.
"""

from typing import Any

from torch import Tensor, nn

from ctxbench.networks._parts import backbone
from ctxbench.registry.networks import MakeModule, network

WIDTH, PATCH = 384, 16


class AsAttention(nn.Module):
    """Tokens [B, n, C] through a module of maps [B, C, H, W]; the map is the square of n tokens."""

    def __init__(self, context: nn.Module) -> None:
        super().__init__()
        self.context = context

    def forward(self, tokens: Tensor, *_: Any, **__: Any) -> Tensor:
        side = int(tokens.shape[1] ** 0.5)  # exact; traced, a size is a tensor, which cannot be rounded
        image = tokens.transpose(1, 2).unflatten(2, (side, side))
        out: Tensor = self.context(image).flatten(2).transpose(1, 2)
        return out


@network(
    "vit_small",
    title="ViT-S/16, the module in place of attention in each block",
    paper="Touvron et al., Training data-efficient image transformers, ICML 2021",
    shape=(1, 3, 224, 224),
    multiple=PATCH,
)
def vit_small(make_module: MakeModule) -> nn.Module:
    """[B, 3, H, H] to [B, 1000]; the slots have 384 channels at H / 16."""
    model = backbone("vit_small_patch16_224", class_token=False, global_pool="avg", dynamic_img_size=True)
    for block in model.blocks:
        block.attn = AsAttention(make_module(WIDTH))
    found: nn.Module = model
    return found
