"""A function as a module, for tests that need a module of a few lines; tensors and blocks on meta."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench import registry


class Wrapped(nn.Module):
    """Calls a function with its inputs, then with these layers and parameters of its own."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function, self.names = function, [f"part{number}" for number in range(len(parts))]
        for name, part in zip(self.names, parts, strict=True):
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, *(getattr(self, name) for name in self.names))


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def on_meta(key: str, *shape: int, **hparams: Any) -> tuple[nn.Module, Tensor]:
    """A block of the registry, and an input of it."""
    with torch.device("meta"):
        return registry.get(key).build(shape[1], hparams), torch.empty(shape)
