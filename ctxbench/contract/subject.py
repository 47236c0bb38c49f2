"""The module under test: how it is built, which inputs it gets, and how a check makes its result."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.contract import CheckResult
from ctxbench.registry.entry import Entry

# Two outputs in float64 are equal if their difference, relative to their largest element, is below this.
AGREES = 1e-12
# Standard deviation of the noise that `Subject.randomised` adds to every parameter.
GATE_NOISE = 0.1


def passed(fact: str) -> CheckResult:
    return CheckResult("", "passed", fact)


def failed(fact: str, hint: str) -> CheckResult:
    return CheckResult("", "failed", fact, hint)


def not_applicable(fact: str) -> CheckResult:
    return CheckResult("", "not applicable", fact)


@dataclass(frozen=True)
class Subject:
    """A module class with the channels and hyper-parameters to check it at; `size` is the usual height and width."""

    entry: Entry
    cls: type[nn.Module]
    channels: int
    hparams: Mapping[str, Any]
    size: tuple[int, int]

    def build(self, seed: int = 0, **changed: Any) -> nn.Module:
        """A new module with its parameters drawn from `seed`."""
        torch.manual_seed(seed)
        return self.cls(self.channels, **{**self.hparams, **changed})

    def randomised(self, seed: int = 0) -> nn.Module:
        """In float64 and eval, with noise on all parameters, so that a factor that starts at 0 hides nothing."""
        module = self.build(seed).double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.is_floating_point() or parameter.is_complex():
                    parameter.add_(GATE_NOISE * torch.randn_like(parameter))
        return module

    def image(
        self, size: tuple[int, int] | None = None, *, batch: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """A standard normal input [batch, channels, *size]."""
        generator = torch.Generator().manual_seed(seed)
        height, width = size or self.size
        return torch.randn(batch, self.channels, height, width, generator=generator, dtype=torch.float64).to(dtype)


def forward(module: nn.Module, x: Tensor, seed: int = 1) -> Tensor:
    """One forward pass from a fixed seed, so that a module that draws random numbers draws the same ones."""
    torch.manual_seed(seed)
    y: Tensor = module(x)
    return y


def difference(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference as a share of the largest element; infinite if either is not finite."""
    if not (torch.isfinite(first).all() and torch.isfinite(second).all()):
        return float("inf")
    scale = max(float(first.abs().max()), float(second.abs().max()))
    return float((first - second).abs().max()) / scale if scale else 0.0


def is_refusal(error: BaseException) -> bool:
    """Whether the module itself, not torch, raised a ValueError to reject its input."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError) and Path(torch.__file__).parent not in Path(frames[-1].filename).parents


def listed(names: list[str], limit: int = 3) -> str:
    """`a, b and 5 more`."""
    more = len(names) - limit
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:limit])} and {more} more"
