"""Gradients beside what they must be: central differences of a module's own values, in float64."""

import copy
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ctxbench.meta.influence import forward
from ctxbench.meta.watch import FunctionWatch
from ctxbench.meta.without_compiler import without_compiler

INPUT = "the input"
# Shares of a leaf's own size. Where the two disagree, the function has a kink between them.
STEPS = (1e-5, 1e-7)
# Relative: slopes that differ by less are the same.
SAME = 1e-4
# So many units in the last place may the output be off.
ROUNDING = 64
# Slopes within this factor are judged together; those below the last of these groups are zero but for rounding.
SIMILAR, MOST_GROUPS, SMALLEST = 100.0, 4, 1e-8
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]  # of a class method
Likeness = Literal["same", "other", "kink"]


class Held(FunctionWatch):
    """Keeps what a pass computes outside of autograd, and puts it in place of what later passes compute there.

    So their differences are those of the function that autograd differentiates. `kept` is empty where nothing stops.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self._at: int | None = None

    def again(self) -> "Held":
        """The same, from the first value that it keeps."""
        self._at = 0
        return self

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        if torch.is_grad_enabled():
            if func not in (Tensor.detach, Tensor.data.__get__):  # type: ignore[attr-defined]  # a property of C
                return out
        elif _in_a_function():
            return out
        return tree_map(lambda each: self._held(each, args), out)

    def _held(self, value: Any, args: Sequence[Any]) -> Any:
        if not isinstance(value, Tensor):
            return value
        if self._at is None:
            self.kept.append(value.detach().clone())
            return value
        kept, self._at = self.kept[self._at], self._at + 1
        if any(value is each for each in args):  # written in its place
            value.copy_(kept)
            return value
        return kept


def positions_first(gradient: Tensor) -> Tensor:
    """[B, C, H, W] with the channels of a position side by side, as the tokens of `flatten(2).transpose(1, 2)` send it.

    Of one image its strides are not those of channels_last.
    """
    batch, channels, _, width = gradient.shape
    tokens = gradient.flatten(2).transpose(1, 2).contiguous()
    strides = (channels if batch == 1 else tokens.stride(0), 1, width * channels, channels)
    return tokens.as_strided(gradient.shape, strides)


def _product(gradient: Tensor, direction: Tensor) -> float:
    """The slope along a direction; of complex numbers, PyTorch's gradient is that of their two parts."""
    return float((gradient.conj() * direction).real.sum())


def _in_a_function() -> bool:
    """Return whether a `torch.autograd.Function` runs its forward, which has no gradient of PyTorch's own."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _APPLY:
        frame = frame.f_back
    return frame is not None


class Point:
    """A module at an input [B, C, H, W] in float64, with weights of its output's elements: their sum is differentiated.

    The buffers are put back before each pass, and random numbers are drawn from `seed`.
    """

    def __init__(self, module: nn.Module, x: Tensor, *, weights_seed: int = 7, seed: int = 1) -> None:
        self.module, self.x, self.seed = module, x.detach(), seed
        self.buffers = [(each, each.detach().clone()) for each in module.buffers()]
        self.leaves = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.output = self._value(self.x).detach()
        generator = torch.Generator().manual_seed(weights_seed)
        self.weights = torch.randn(self.output.shape, dtype=x.dtype, generator=generator)

    def _value(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for buffer, kept in self.buffers:
                buffer.copy_(kept)
        return forward(self.module, x, self.seed)

    def of(self, module: nn.Module) -> "Point":
        """The same place of another module with these weights and buffers, such as the compiled one."""
        other = copy.copy(self)
        other.module = module
        return other

    def gradients(
        self,
        laid_out: Callable[[Tensor], Tensor] = Tensor.contiguous,
        arriving: Callable[[Tensor], Tensor] = Tensor.contiguous,
    ) -> dict[str, Tensor]:
        """Gradients that PyTorch computes of the input and each parameter, where input and incoming gradient lie so."""
        x = laid_out(self.x).clone().requires_grad_()
        y = self._value(x)
        with without_compiler():
            found = torch.autograd.grad(y, [x, *self.leaves.values()], arriving(self.weights), materialize_grads=True)
        return dict(zip((INPUT, *self.leaves), found, strict=True))

    def directions(self, gradients: Mapping[str, Tensor], seed: int = 0) -> list[dict[str, Tensor]]:
        """Random directions of the leaves, of their own sizes: of the input, and of parameters of similar slopes.

        So a wrong gradient moves its group's slope by a share that rounding does not hide.
        """
        generator = torch.Generator().manual_seed(seed)
        groups: dict[int, dict[str, Tensor]] = {}
        slopes: dict[str, float] = {}
        for name, gradient in gradients.items():
            leaf = self.x if name == INPUT else self.leaves[name].detach()
            size = leaf.abs().square().mean().sqrt() if leaf.any() else 1.0
            direction = size * torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator)
            slopes[name] = abs(_product(gradient, direction))
            size_of = min(MOST_GROUPS, max(0, int(-math.log(slopes[name] or SMALLEST, SIMILAR))))
            groups.setdefault(-1 if name == INPUT else size_of, {})[name] = direction
        for group in groups.values():
            least = min(slopes[name] for name in group)
            group.update({n: each * (least / slopes[n]) for n, each in group.items() if slopes[n] > SMALLEST})
        return list(groups.values())

    def judged(
        self, claimed: Mapping[str, Tensor], directions: Mapping[str, Tensor], held: bool = False
    ) -> tuple[Likeness, float]:
        """Verdict on the slope that gradients claim, and by what share of the larger one it is off the function's."""
        slope = sum(_product(claimed[name], each) for name, each in directions.items())
        values = Held() if held else None
        middle = self._moved(directions, 0.0, values)
        found = []
        for step in STEPS:
            up, down = (self._moved(directions, sign * step, values and values.again()) for sign in (1, -1))
            central = float(((up - down) * self.weights).sum()) / (2 * step)
            bend = abs(float(((up - middle - (middle - down)) * self.weights).sum())) / step
            noise = ROUNDING * torch.finfo(up.dtype).eps * float((middle * self.weights).norm()) / step
            off = abs(slope - central)
            if off <= SAME * max(abs(slope), abs(central)) + noise:
                return "same", off / max(abs(slope), abs(central), noise)
            found.append((central, off, max(bend, noise)))
        (coarse, _, _), (fine, off, doubt) = found
        share = off / max(abs(slope), abs(fine))
        return ("other" if off > 2 * max(doubt, abs(coarse - fine)) else "kink"), share

    def _moved(self, directions: Mapping[str, Tensor], step: float, held: Held | None) -> Tensor:
        """The output at a place that lies `step` times the directions away."""
        # what stops a gradient is told by whether there would be one
        context: AbstractContextManager[Any] = torch.no_grad() if held is None else held
        x = (self.x + step * directions.get(INPUT, torch.zeros(()))).requires_grad_(held is not None)
        own = [(self.leaves[name], each) for name, each in directions.items() if name != INPUT]
        kept = [leaf.detach().clone() for leaf, _ in own]
        try:
            with torch.no_grad():
                for leaf, each in own:
                    leaf.add_(step * each)
            with context:
                y = self._value(x)
            return y.detach()
        finally:
            with torch.no_grad():
                for (leaf, _), each in zip(own, kept, strict=True):
                    leaf.copy_(each)
