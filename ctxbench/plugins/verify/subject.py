"""The module under test: how it is built, which inputs it gets, and how a check makes its result."""

import math
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.meta.built import converted, initialised
from ctxbench.meta.influence import AGREES, forward, with_noise
from ctxbench.meta.outputs import trained_input
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.registry.entry import Entry

# torch on operands of two dtypes.
_MIXED = re.compile(r"(Float|Double|dtype|scalar type)")

# A smaller last side of a weight is that of a kernel.
LEAST_SIDE = 4
# Fact and hint.
OVERWRITES = ("forward changes its input in place", "write x = x + 1 instead of x += 1, or begin with x = x.clone()")


def passed(fact: str) -> CheckResult:
    return CheckResult("", "passed", fact)


def failed(fact: str, hint: str) -> CheckResult:
    return CheckResult("", "failed", fact, hint)


def not_applicable(fact: str) -> CheckResult:
    return CheckResult("", "not applicable", fact)


@dataclass(frozen=True)
class Subject:
    """A maker of modules, with the channels and hyper-parameters to check it at; `size` is the usual height and width.

    Of the `other_sizes` the first that it takes stands in for a `size` that it refuses; `refused` says why. `dtype` is
    what the checks compute in: float32 for a module that cannot run in float64.
    """

    entry: Entry
    make: Callable[..., nn.Module]
    channels: int
    hparams: Mapping[str, Any]
    size: tuple[int, int]
    other_sizes: tuple[tuple[int, int], ...] = ()
    refused: str = ""
    dtype: torch.dtype = torch.float64

    @property
    def agrees(self) -> float:
        return AGREES[self.dtype]

    def build(self, seed: int = 0, **changed: Any) -> nn.Module:
        """A new module with its parameters drawn from `seed`."""
        torch.default_generator.manual_seed(seed)
        made = self.make(self.channels, **{**self.hparams, **changed})
        return initialised(made, (2, self.channels, *self.size))

    def randomised(self, seed: int = 0) -> nn.Module:
        """In eval, with noise on all parameters, so that a factor that starts at 0 hides nothing."""
        return with_noise(converted(self.build(seed), "cpu", self.dtype))

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
    return trained_input(module, subject.image(dtype=torch.float32))


def at_its_size(subject: Subject) -> Subject:
    """The subject at the first of its sizes that it takes, or at one of its weights; as it is where it takes none."""
    refused: dict[tuple[int, int], str] = {}
    for size in chain((subject.size,), subject.other_sizes, _sizes_of_weights(subject)):
        if size in refused:
            continue
        found, why = output_size(subject, size)
        if why:
            refused[size] = why
        elif not refused or found == size:
            only = "square maps only; " if refused and _takes_other_squares(subject, size) else ""
            first = next((f"{only}refuses {shown(each)}: {why}" for each, why in refused.items()), "")
            return replace(subject, size=size, refused=first)
    return subject


def output_size(subject: Subject, size: tuple[int, int]) -> tuple[tuple[int, ...], str]:
    """The height and width of the output for an input of this size, and what the module raises instead."""
    try:
        with torch.no_grad():
            y = forward(subject.build().eval(), subject.image(size, dtype=torch.float32))
    except Exception as error:  # what it raises is told at its usual size
        return (), describe_failure(error).message
    return tuple(getattr(y, "shape", ()))[2:], ""


def _takes_other_squares(subject: Subject, size: tuple[int, int]) -> bool:
    """Return whether a size is a square, and another one is taken, too."""
    others = [each for each in subject.other_sizes if each[0] == each[1] != size[0]]
    return size[0] == size[1] and any(output_size(subject, each) == (each, "") for each in others)


def _sizes_of_weights(subject: Subject) -> Iterator[tuple[int, int]]:
    """The heights and widths of position codes [1, C, H, W] and [1, N, C]; none where the size is asked for."""
    module = subject.build() if subject.other_sizes else nn.Module()
    for each in (*module.parameters(), *module.buffers()):
        side = math.isqrt(each.shape[-2]) if each.dim() > 1 else 0
        height, width = each.shape[2:] if each.dim() == 4 else (side, side)
        if min(height, width) >= LEAST_SIDE and (each.dim() == 4 or side**2 == each.shape[-2]):
            yield height, width


def shown(size: tuple[int, int]) -> str:
    """`11x9`: height and width."""
    return f"{size[0]}x{size[1]}"


def in_its_dtype(subject: Subject) -> Subject:
    """The subject with float32 in place of float64 if it makes tensors of a fixed dtype; "other dtypes" tells why."""
    try:
        with torch.no_grad():
            forward(converted(subject.build(), "cpu", torch.float64).eval(), subject.image())
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
