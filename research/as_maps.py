"""Public modules as blocks of a map [B, C, H, W]: those of tokens, of channels last, or with arguments of their own."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Through(nn.Module):
    """A module whose forward is a function of it and the map."""

    def __init__(self, inner: nn.Module, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.inner, x)


def last(function: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """A function of a map with channels last, as one of a map [B, C, H, W]."""
    return lambda inner, x: function(inner, x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def tokens(function: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """A function of tokens [B, n, C], as one of a map [B, C, H, W]."""
    return lambda inner, x: function(inner, x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, x.shape[2:])
