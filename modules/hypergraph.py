"""Hypergraph attention of YOLOv13: a few hyperedges, made from the map, gather from all positions and give back.

Source: Lei et al., YOLOv13: Real-Time Object Detection with Hypergraph-Enhanced Adaptive Visual Perception,
arXiv:2506.17733, 2025; from its equations: the global branch with equal widths, in evaluation and training without
dropout. The heads of the paper average their similarities, which is one product of all channels. Half types take the
softmax over the positions in float32. Far positions are seen through the hyperedges alone.
"""

from collections import OrderedDict
from typing import Literal

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_choice, check_input, check_positive
from ctxbench.modules._layers import gradient_in_order, largest
from ctxbench.registry import register

CONTEXTS = ("both", "mean", "max")


class EdgeGenerator(nn.Module):
    """Tokens [B, n, C] to the share of each position in each hyperedge, [B, n, E]; the shares of an edge sum to 1."""

    def __init__(self, channels: int, hyperedges: int, heads: int, context: str) -> None:
        super().__init__()
        self.context, self.scale = context, (heads * channels) ** -0.5
        self.prototype_base = nn.Parameter(torch.empty(hyperedges, channels))
        self.context_net = nn.Linear(channels * (2 if context == "both" else 1), hyperedges * channels)
        self.pre_head_proj = nn.Linear(channels, channels)
        nn.init.xavier_uniform_(self.prototype_base)

    def forward(self, tokens: Tensor) -> Tensor:
        means = [] if self.context == "max" else [tokens.mean(1)]
        maxima = [] if self.context == "mean" else [largest(tokens, 1).squeeze(1)]
        made = torch.unflatten(self.context_net(torch.cat([*means, *maxima], dim=1)), 1, (len(self.prototype_base), -1))
        scores = self.pre_head_proj(tokens) @ ((self.prototype_base + made) * self.scale).transpose(1, 2)
        return torch.softmax(scores.to(torch.promote_types(scores.dtype, torch.float32)), dim=1).to(scores.dtype)


class HypergraphConvolution(nn.Module):
    """Tokens [B, n, C] to the same: gathered by hyperedges, given back, and added to what came."""

    def __init__(self, channels: int, generator: EdgeGenerator) -> None:
        super().__init__()
        self.edge_generator = generator
        self.edge_proj = nn.Sequential(nn.Linear(channels, channels), nn.GELU())
        self.node_proj = nn.Sequential(nn.Linear(channels, channels), nn.GELU())

    def forward(self, tokens: Tensor) -> Tensor:
        shares = self.edge_generator(tokens)
        edges = self.edge_proj(shares.transpose(1, 2) @ tokens)
        return torch.add(self.node_proj(shares @ edges), tokens)


@register(
    "hypergraph",
    title="Hypergraph attention (YOLOv13)",
    paper="Lei et al., YOLOv13: Real-Time Object Detection with Hypergraph-Enhanced Adaptive Visual Perception, "
    "arXiv:2506.17733, 2025",
    year=2025,
    family="linear attention",
    params="7*C**2 + 9*C + 2*hyperedges*C + hyperedges*C**2*(2 if context == 'both' else 1)",
    macs="6*N*C**2 + 3*N*hyperedges*C + 3*N*C + B*hyperedges*C"
    " + B*hyperedges*C**2*(3 if context == 'both' else 2) + (0 if context == 'max' else B*C)",
    complexity="n*C**2 + C**2*hyperedges",
    public_code="iMoonLab/yolov13, AGPL-3.0",
)
class HypergraphAttention(nn.Module):
    """[B, C, H, W] to [B, C, H, W] with `hyperedges`, made from the mean or the maximum of the map, or from both.

    A head is `head_width` channels wide; their number scales the similarities alone.
    """

    def __init__(
        self,
        channels: int,
        *,
        hyperedges: int = 8,
        head_width: int = 16,
        context: Literal["both", "mean", "max"] = "both",
    ) -> None:
        super().__init__()
        check_positive(channels=channels, hyperedges=hyperedges, head_width=head_width)
        check_choice("context", context, CONTEXTS)
        if channels % head_width:
            raise ValueError(f"channels is {channels}; hypergraph needs a multiple of head_width ({head_width})")
        self.channels = channels
        self.cv1, self.cv2, self.cv3 = (_layer(width, channels) for width in (channels, channels, 2 * channels))
        generator = EdgeGenerator(channels, hyperedges, channels // head_width, context)
        self.m = nn.ModuleDict({"hgnn": HypergraphConvolution(channels, generator)})

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "hypergraph")
        tokens = gradient_in_order(self.cv1(x)).flatten(2).transpose(1, 2)
        joined = torch.unflatten(self.m["hgnn"](tokens).transpose(1, 2), 2, x.shape[2:])
        y: Tensor = gradient_in_order(self.cv3(torch.cat([joined, self.cv2(x)], dim=1)))
        return y


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(inputs, outputs, 1, bias=False), bn=norm, act=nn.SiLU()))
