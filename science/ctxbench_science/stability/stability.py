"""Stability of a module in a dtype: the first value that is not finite, with its line, and a short training's loss."""

import copy
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from ctxbench.meta.autocast import Autocast
from ctxbench.meta.watch import OperatorCall, PassWatch
from ctxbench.meta.without_compiler import without_compiler

# Factors of a standard normal input: with four times the last one, the input's own numbers overflow in float16.
SCALES = tuple(4**power for power in range(7))
# Of the training: AdamW with PyTorch's defaults, but for the rate.
STEPS, RATE = 20, 1e-2
# What allocates and computes nothing: its numbers are those that were in memory.
_UNSET = frozenset(("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"))


@dataclass(frozen=True, slots=True)
class Overflow:
    """An operator that gives a number that is not finite, of numbers that are; `scale` is the input's."""

    operator: str
    where: str
    value: str
    scale: int = 1

    def __str__(self) -> str:
        return f"{self.operator} {self.where} gives {self.value} at scale {self.scale}"


@contextmanager
def autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """PyTorch's autocast on a kind of device, unless `dtype` is None; on a CPU with the lists for CUDA.

    PyTorch's own on a CPU leaves exp, softmax and sums in the low dtype. A part of a module that switches autocast off
    has none, whichever of the two devices it names.
    """
    if device != "cpu" or dtype is None:
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            yield
        return
    with torch.autocast(device, dtype=dtype), _WhereEnabled("cuda", dtype):
        yield


class _WhereEnabled(Autocast):
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.is_autocast_enabled("cpu") and torch.is_autocast_enabled("cuda"):
            return super().call(func, args, kwargs)
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs)


def overflows(
    model: nn.Module, x: Tensor, dtype: torch.dtype, lower: torch.dtype | None = None, seed: int = 0
) -> tuple[Overflow | None, Overflow | None]:
    """The first one of the forward pass in training mode on `scale * x` as the scale rises, and of its gradients.

    `model` and `x` [B, C, H, W] are in float32, and are tried in `dtype`, under autocast to `lower`; the output's own
    gradient is standard normal. The gradients are not tried beyond an overflow of the forward pass. What is not finite
    in float32 either, at scale 1 and with finite results, is a module's way of masking and counts as finite.
    """
    usual = _Pass(copy.deepcopy(model), x, None, seed)
    usual.run_forward()
    usual.run_backward()
    known = usual.found if usual.is_finite else []
    gradient = None
    for scale in SCALES:
        tried = _Pass(copy.deepcopy(model).to(dtype), (scale * x).to(dtype), lower, seed, known)
        tried.run_forward()
        if forward := tried.first:
            return replace(forward, scale=scale), gradient
        if not gradient:
            tried.run_backward()
            gradient = tried.first and replace(tried.first, scale=scale)
    return None, gradient


class _Pass(PassWatch):
    """A training pass, which changes the model; `found` are its overflows in time order, without those in `known`."""

    def __init__(
        self, model: nn.Module, x: Tensor, lower: torch.dtype | None, seed: int, known: Collection[Overflow] = ()
    ) -> None:
        super().__init__(model)
        self.found: list[Overflow] = []
        self._model, self._x = model.train(), x.clone().requires_grad_()
        self._lower, self._seed, self._known = lower, seed, known
        self._worse: list[Overflow] = []  # all that give what no tensor held before
        self._results: list[Tensor] = []

    @property
    def is_finite(self) -> bool:
        """Return whether output and gradients are finite."""
        return not _not_finite(self._results)

    @property
    def first(self) -> Overflow | None:
        """The first one; where it is on purpose and yet in the results, the operator that made NaN of it."""
        if self.found or self.is_finite:
            return self.found[0] if self.found else None
        worse = sorted(self._worse, key=lambda each: each.value != "NaN")
        return worse[0] if worse else Overflow("a weight", "of the module", _not_finite(self._results))

    def run_forward(self) -> None:
        torch.manual_seed(self._seed)
        with self, autocast(self._x.device.type, self._lower):
            self._results.append(self._model(self._x))

    def run_backward(self) -> None:
        (y,) = self._results
        if not y.requires_grad:
            return
        gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(self._seed)).to(y)
        wanted = [self._x, *(each for each in self._model.parameters() if each.requires_grad)]
        self.in_backward = True
        with self, without_compiler():
            gradients = torch.autograd.grad(y, wanted, gradient, allow_unused=True)
        self._results += [each for each in gradients if each is not None]

    def run(self, call: OperatorCall) -> None:
        given, place = (call.args, call.kwargs), call.place
        name = call.func._schema.name.partition("::")[2]
        # what an operator writes into is looked at before and after it; a batch norm does not declare its statistics
        writes = call.func._schema.is_mutable or "batch_norm" in name
        before = _not_finite(given) if writes else ""
        super().run(call)
        out = call.output
        value = "" if name in _UNSET else _not_finite((out, given) if writes else out)
        if value and value != (before := before if writes else _not_finite(given)):
            of = "in the gradient of" if self.in_backward else "at"
            overflow = Overflow(name, f"{of} {place.own or place.node}", value)
            self._worse.append(overflow)
            on_purpose = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in tree_leaves(given))
            if not before and not on_purpose and overflow not in self._known:
                self.found.append(overflow)


def _not_finite(tree: Any) -> str:
    """`NaN` if a tensor of a tree holds one, else `infinity`, or "" if all are finite."""
    found = ""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor) and leaf.is_complex():
            leaf = torch.view_as_real(leaf)
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel():
            ends = [each.item() for each in torch.aminmax(leaf.detach())]
            if any(map(math.isnan, ends)):
                return "NaN"
            if any(map(math.isinf, ends)):
                found = "infinity"
    return found


def losses(
    model: nn.Module, x: Tensor, dtype: torch.dtype, lower: torch.dtype | None = None, seed: int = 0
) -> list[float]:
    """The mean squared errors of a short training after 0, 1, 2, ... updates; it ends with one that is not finite.

    A 1x1 convolution in float32 behind the module learns to give back `x` [B, C, H, W]. Weights are kept in float32 and
    cast to `dtype` for each pass. Where float16 is used, the loss is scaled (GradScaler): of STEPS steps, those whose
    gradients are not finite are left out, and so is their error.
    """
    device = x.device.type
    own = copy.deepcopy(model).to(dtype).train()
    dtypes = {name: each.dtype for name, each in own.named_parameters()}
    weights = {
        name: each.detach().clone().requires_grad_(each.requires_grad) for name, each in model.named_parameters()
    }
    with torch.no_grad():
        outputs = copy.deepcopy(model)(x).shape[1]
    torch.manual_seed(seed)
    head = nn.Conv2d(outputs, x.shape[1], 1).to(x.device)
    optimizer = torch.optim.AdamW([*weights.values(), *head.parameters()], RATE)
    scaler = torch.amp.GradScaler(device, enabled=torch.float16 in (dtype, lower))
    found = []
    for _ in range(STEPS):
        with autocast(device, lower):
            cast = {name: each.to(dtypes[name]) for name, each in weights.items()}
            y = torch.func.functional_call(own, cast, x.to(dtype))
        loss = functional.mse_loss(head(y.float()), x)
        found.append(loss.item())
        if not math.isfinite(found[-1]):
            break
        optimizer.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < scale:
            found.pop()
    return found
