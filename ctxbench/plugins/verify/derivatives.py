"""The check that gradients are those of the function: central differences of its values in float64 decide."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ctxbench.base.number import significant
from ctxbench.meta.differences import Point, positions_first
from ctxbench.meta.gradient_order import WAY_OUT
from ctxbench.meta.watch import OperatorCall, PassWatch
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, failed, listed, not_applicable, passed

# Relative, beside the largest gradient: orders of the same elements that differ by less are the same.
SAME = 1e-6
# So many draws are tried where a kink is met.
DRAWS = 3
OWN_BACKWARD = "look at the backward that is written by hand; torch.autograd.gradcheck tries one function alone"
STOPS = (
    "detach, .data or torch.no_grad stops a part of it: if that is intended, declare stops_gradient=True in @register"
)


@dataclass(frozen=True)
class PassSetting:
    """Number of images of a pass, its mode, and how its input and the gradient that arrives lie in memory."""

    images: int
    training: bool
    laid_out: str = "contiguous"
    arriving: str = "contiguous"

    def __str__(self) -> str:
        images = "one image" if self.images == 1 else f"{self.images} images"
        orders = [f"a gradient that arrives {self.arriving}"] * (self.arriving != "contiguous")
        orders = ["an input in channels_last"] * (self.laid_out != "contiguous") + orders
        return f"{images} in {'train' if self.training else 'eval'}{', ' * bool(orders)}{' and '.join(orders)}"


def exact_gradients(subject: Subject) -> CheckResult:
    """The gradients of the input and of all parameters are those of the function, but for what is declared to stop.

    With one image and two, in train and eval, of inputs in both layouts, and for a gradient that arrives transposed.
    """
    if subject.dtype != torch.float64:
        return not_applicable("differences in float32 are too coarse")
    declared = subject.entry.stops(subject.hparams)
    remarks: list[str] = []
    kinks = 0
    for images, training in ((1, True), (1, False), (2, True), (2, False)):
        setting = PassSetting(images, training)
        point = _point(subject, setting, 0)
        if point is None:
            remarks.append(f"{setting}: refused")
            continue
        verdict, wrong = _against_values(subject, setting, declared)
        kinks += verdict == "kink"
        if wrong:
            return wrong
        for order, name, share in _other_orders(point, setting):
            fact = _fact(order, name, share)
            blamed = _blamed(point, order)
            sentence = f"{fact}: {blamed}" if blamed else fact
            if order.arriving == "contiguous":
                return failed(sentence, WAY_OUT if blamed else OWN_BACKWARD)
            remarks.append(f"{sentence}; {WAY_OUT}" if blamed else sentence)
            break
    return _summary(subject, declared, remarks, kinks)


def _summary(subject: Subject, declared: bool, remarks: list[str], kinks: int) -> CheckResult:
    fact = "the gradients of the input and of all parameters are those of central differences"
    if declared:
        fact = f"as declared, a part has no gradient: {fact} that hold it constant"
    fact += "; at a kink in all draws, so not decided in a part of the settings" * bool(kinks)
    return passed("; ".join([fact, *remarks[:1]]))


def _point(subject: Subject, setting: PassSetting, draw: int) -> Point | None:
    """The module at a drawn input; None where it refuses one image."""
    module = subject.randomised(draw).train(setting.training)
    try:
        return Point(module, subject.image(batch=setting.images, seed=draw))
    except ValueError:
        if setting.images > 1:
            raise
        return None


def _against_values(subject: Subject, setting: PassSetting, declared: bool) -> tuple[str, CheckResult | None]:
    """Verdict of differences on the gradients for contiguous tensors, and the result where they are other ones."""
    for draw in range(DRAWS):
        point = _point(subject, setting, draw)
        assert point is not None
        gradients = point.gradients()
        groups = point.directions(gradients, draw)
        verdicts = [(group, *point.judged(gradients, group, declared)) for group in groups]
        others = [(group, share) for group, verdict, share in verdicts if verdict == "other"]
        if others:
            return "other", _other(point, setting, gradients, others, declared)
        if all(verdict == "same" for _, verdict, _ in verdicts):
            if declared and all(point.judged(gradients, group)[0] == "same" for group in groups):
                continue  # what is stopped may have no effect here
            return "same", None
    if declared:
        return "same", failed(f"{setting}: nothing is stopped", "correct stops_gradient= in @register")
    return "kink", None


def _other(
    point: Point,
    setting: PassSetting,
    gradients: Mapping[str, Tensor],
    others: list[tuple[dict[str, Tensor], float]],
    declared: bool,
) -> CheckResult:
    """The failure, with the leaf that is furthest off, and what may be at fault."""
    alone = {
        name: share
        for group, _ in others
        for name, each in group.items()
        for verdict, share in [point.judged(gradients, {name: each}, declared)]
        if verdict == "other"
    }
    name, share = max(alone.items(), key=lambda each: each[1]) if alone else (listed(list(others[0][0])), others[0][1])
    fact = _fact(setting, name, share)
    if blamed := _blamed(point, setting):
        return failed(f"{fact}: {blamed}", WAY_OUT)
    if not declared and all(point.judged(gradients, group, held=True)[0] == "same" for group, _ in others):
        return failed(f"{fact}, and right with what is computed without a gradient held constant", STOPS)
    own = _own_functions(point)
    return failed(fact + f": of {listed(own)}, whose backward is written by hand" * bool(own), OWN_BACKWARD)


def _fact(setting: PassSetting, name: str, share: float) -> str:
    return f"of {setting}, the gradient of {name} is off by {significant(100 * share, 2)} %"


Order = Callable[[Tensor], Tensor]
LAID_OUT: dict[str, Order] = {
    "contiguous": lambda x: x.contiguous(),
    "in channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
}


ARRIVING: dict[str, Order] = {"contiguous": LAID_OUT["contiguous"], "positions first": positions_first}


def _gradients(point: Point, setting: PassSetting) -> dict[str, Tensor]:
    return point.gradients(LAID_OUT[setting.laid_out], ARRIVING[setting.arriving])


def _other_orders(point: Point, setting: PassSetting) -> Iterator[tuple[PassSetting, str, float]]:
    """The settings in which another order in memory gives another gradient: of what, and by which share."""
    expected = _gradients(point, setting)
    largest = max(float(each.norm()) for each in expected.values())
    for laid_out in LAID_OUT:
        for arriving in ARRIVING:
            other = replace(setting, laid_out=laid_out, arriving=arriving)
            found = _gradients(point, other) if other != setting else expected
            off = {name: float((found[name] - each).norm()) for name, each in expected.items()}
            name = max(off, key=lambda name: off[name])
            if off[name] > SAME * largest:
                yield other, name, off[name] / max(float(expected[name].norm()), SAME * largest)


class Replayed(PassWatch):
    """Repeats each backward of PyTorch's with contiguous tensors, and keeps the names of those that differ."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.wrong: dict[str, None] = {}

    def take(self, call: OperatorCall) -> None:
        if "backward" in str(call.func) and not call.func._schema.is_mutable:
            again = call.func(*tree_map(_contiguous, call.args), **tree_map(_contiguous, call.kwargs))
            leaves = zip(tree_leaves(call.output), tree_leaves(again), strict=True)
            pairs = [each for each in leaves if each[0] is not None]
            largest = max(float(b.norm()) for _, b in pairs)
            if any(float((a - b).norm()) > SAME * largest for a, b in pairs):
                self.wrong[str(call.func).removeprefix("aten.").removesuffix(".default")] = None


def _contiguous(each: Any) -> Any:
    return each.contiguous() if isinstance(each, Tensor) else each


def _blamed(point: Point, setting: PassSetting) -> str:
    """The sentence on PyTorch's own backward that reads a gradient in a wrong order; "" if there is none."""
    with Replayed(point.module) as replayed:
        _gradients(point, setting)
    wrong = listed(list(replayed.wrong))
    return f"{wrong} of torch {torch.__version__} reads a gradient in a wrong order" if wrong else ""


def _own_functions(point: Point) -> list[str]:
    """Names of the autograd functions with a backward in Python that the output was made by."""
    y = point.module(point.x.clone().requires_grad_())
    seen, left, found = set(), [y.grad_fn], dict[str, None]()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found[type(node).__name__.removesuffix("Backward")] = None
        left += [each for each, _ in node.next_functions]
    return list(found)
