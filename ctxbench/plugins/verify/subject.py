"""The module under test: how it is built, which inputs it gets, and how a check makes its result."""

import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.meta.influence import AGREES, forward, with_noise
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.registry.entry import Entry

# torch on operands of two dtypes.
_MIXED = re.compile(r"(Float|Double|dtype|scalar type)")


def passed(fact: str) -> CheckResult:
    return CheckResult("", "passed", fact)


def failed(fact: str, hint: str) -> CheckResult:
    return CheckResult("", "failed", fact, hint)


def not_applicable(fact: str) -> CheckResult:
    return CheckResult("", "not applicable", fact)


@dataclass(frozen=True)
class Subject:
    """A module class with the channels and hyper-parameters to check it at; `size` is the usual height and width.

    `dtype` is what the checks compute in: float32 for a module that cannot run in float64.
    """

    entry: Entry
    cls: type[nn.Module]
    channels: int
    hparams: Mapping[str, Any]
    size: tuple[int, int]
    dtype: torch.dtype = torch.float64

    @property
    def agrees(self) -> float:
        return AGREES[self.dtype]

    def build(self, seed: int = 0, **changed: Any) -> nn.Module:
        """A new module with its parameters drawn from `seed`."""
        torch.manual_seed(seed)
        return self.cls(self.channels, **{**self.hparams, **changed})

    def randomised(self, seed: int = 0) -> nn.Module:
        """In eval, with noise on all parameters, so that a factor that starts at 0 hides nothing."""
        return with_noise(self.build(seed).to(self.dtype))

    def image(
        self, size: tuple[int, int] | None = None, *, batch: int = 2, seed: int = 0, dtype: torch.dtype | None = None
    ) -> Tensor:
        """A standard normal input [batch, channels, *size]."""
        generator = torch.Generator().manual_seed(seed)
        height, width = size or self.size
        return torch.randn(batch, self.channels, height, width, generator=generator, dtype=torch.float64).to(
            dtype or self.dtype
        )


def step_input(subject: Subject, module: nn.Module) -> Tensor:
    """An input in float32 for a training step; it asks for a gradient itself where no weight does."""
    has_weights = any(parameter.requires_grad for parameter in module.parameters())
    return subject.image(dtype=torch.float32).requires_grad_(not has_weights)


def in_its_dtype(subject: Subject) -> Subject:
    """The subject with float32 in place of float64 if it makes tensors of a fixed dtype; "other dtypes" tells why."""
    try:
        with torch.no_grad():
            forward(subject.build().double().eval(), subject.image())
    except RuntimeError as error:
        return replace(subject, dtype=torch.float32) if _MIXED.search(str(error)) else subject
    except Exception:  # what else it raises is for the checks to tell
        return subject
    return subject


def difference(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference as a share of the largest element; infinite if either is not finite."""
    if not (torch.isfinite(first).all() and torch.isfinite(second).all()):
        return float("inf")
    scale = max(float(first.abs().max()), float(second.abs().max()))
    return float((first - second).abs().max()) / scale if scale else 0.0


def is_refusal(error: BaseException) -> bool:
    """Return whether the module itself, not torch, raised a ValueError to reject its input."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError) and Path(torch.__file__).parent not in Path(frames[-1].filename).parents


def listed(names: list[str], limit: int = 3) -> str:
    """`a, b and 5 more`."""
    more = len(names) - limit
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:limit])} and {more} more"
