"""The transformers whose passes NeuSight measured, from their sizes alone: see docs/plugins/predict.md.

Operators and shapes are those of transformers 4.38.1 with eager attention, as the study describes them.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """[B, S, D] to [B, S, D]; `causal` masks with `where`, else a mask [B, 1, 1, S] is added."""

    def __init__(self, width: int, heads: int, joint: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.joint, self.dropout = heads, joint, dropout
        self.qkv = nn.ModuleList(
            [nn.Linear(width, 3 * width)] if joint else [nn.Linear(width, width) for _ in range(3)]
        )
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Any:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        q, k, v = self.qkv[0](x).chunk(3, -1) if self.joint else (layer(x) for layer in self.qkv)
        q, k, v = map(self.split, (q, k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        lowest = torch.full((), -1e30, device=x.device)
        scores = torch.where(mask, scores, lowest) if self.joint else scores + mask
        weights = functional.dropout(functional.softmax(scores, -1), self.dropout, self.training)
        return self.out((weights @ v).transpose(1, 2).reshape(x.shape))


class OptAttention(Attention):
    """Products over [B heads, S, d]: each projection is copied, the mask is added and cut at the smallest float."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        q, k, v = (self.split(layer(x)).contiguous().flatten(0, 1) for layer in self.qkv)
        scores = torch.bmm(q * 0.125, k.transpose(1, 2)).view(x.shape[0], self.heads, x.shape[1], -1) + mask
        scores = torch.max(scores, torch.full((), -1e30, device=x.device)).flatten(0, 1)
        found = torch.bmm(functional.softmax(scores, -1), v).view(x.shape[0], self.heads, x.shape[1], -1)
        return self.out(found.transpose(1, 2).reshape(x.shape))


def gelu_by_tanh(x: Tensor) -> Any:
    """Eight elementwise calls."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Layer(nn.Module):
    """A layer; `first`: norms before attention and feed-forward, else after each sum."""

    def __init__(self, attention: Attention, width: int, inner: int, act: Any, first: bool) -> None:
        super().__init__()
        self.attention, self.act, self.first = attention, act, first
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        one, two = self.norms
        if self.first:
            x = x + self.drop(self.attention(one(x), mask))
            return x + self.drop(self.down(self.act(self.up(two(x)))))
        x = one(x + self.drop(self.attention(x, mask)))
        return two(x + self.drop(self.down(self.act(self.up(x)))))

    def drop(self, x: Tensor) -> Any:
        return functional.dropout(x, 0.1, self.training)


class Transformer(nn.Module):
    """Token ids [B, S] to scores; in training to the cross entropy of all tokens."""

    def __init__(self, name: str, layers: int, width: int, heads: int, inner: int, words: int, head: str) -> None:
        super().__init__()
        self.bert = name.startswith("BERT")
        opt = name.startswith("OPT")
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(2050, width)
        kind = OptAttention if opt else Attention
        act: Any = functional.relu if opt else functional.gelu if self.bert else gelu_by_tanh
        self.layers = nn.ModuleList(
            Layer(kind(width, heads, not (self.bert or opt), 0.1), width, inner, act, not self.bert)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.mixed = head != "classifier2"
        self.pool = nn.Linear(width, width) if self.bert else None
        self.head = nn.Linear(width, words if self.mixed else 2, bias=self.bert)
        self.before = nn.Linear(width, width) if self.bert and self.mixed else None
        self.last = nn.LayerNorm(width) if self.bert and self.mixed else None
        self.causal = not (self.bert or opt)

    def forward(self, tokens: Tensor) -> Any:
        batch, length = tokens.shape
        x = self.words(tokens) + self.places(torch.zeros(1, length, dtype=torch.long, device=tokens.device))
        if self.bert:
            x = self.norm(x + self.words(tokens))
        x = functional.dropout(x, 0.1, self.training)
        shape = (1, 1, length, length) if self.causal else (batch, 1, 1 if self.bert else length, length)
        mask = torch.ones(shape, dtype=torch.bool if self.causal else torch.float32, device=tokens.device)
        for layer in self.layers:
            x = layer(x, mask)
        if not self.bert:
            x = self.norm(x)
        elif self.before is not None and self.last is not None:
            x = self.last(functional.gelu(self.before(x)))
        elif self.pool is not None:
            return self.head(torch.tanh(self.pool(x[:, 0])))
        scores = self.head(x)
        if not self.training:
            return scores
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
