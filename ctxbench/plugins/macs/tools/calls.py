"""Calls of a pass without data: the layers, and the operators at each level, as other counters see them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ctxbench.base.call_sites import CallSite, CallSites
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.counter import on_one_device, repeatable
from ctxbench.plugins.macs.rules import PRODUCTS


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A call of a submodule: the tensors that it is given, and its output."""

    layer: nn.Module
    inputs: Sequence[Any]
    output: Any


@dataclass(frozen=True, eq=False)
class OperatorCall:
    """A call of an operator. `around` has the composite operators that it is a part of, `layers` the submodules."""

    name: str
    args: Sequence[Any]
    output: Any
    place: CallSite
    around: Sequence[str]
    layers: Sequence[nn.Module]

    @property
    def macs(self) -> int:
        """Its multiply-accumulates, if it is a product or a convolution, and no part of one."""
        return 0 if PRODUCTS.keys() & {*self.around} else PRODUCTS.get(self.name, _none)(self.args, self.output)


@dataclass(frozen=True)
class Calls:
    """Calls of one pass of a module, each after its parts; `again` gives those of another input."""

    module: nn.Module
    shape: Sequence[int]
    layers: Sequence[LayerCall]
    operators: Sequence[OperatorCall]
    again: Callable[[Sequence[int]], "Calls"]


def _none(args: Sequence[Any], output: Any) -> int:
    return 0


Rule = Callable[[OperatorCall], int]
LayerRule = Callable[[LayerCall], int]


@dataclass(frozen=True)
class Tool:
    """A counter: `count` is the number that it prints of a pass, in its own `unit`.

    `sees` tells of a product whether it counts; `about` is the convention in a sentence, `package` what was run, with
    its version.
    """

    name: str
    package: str
    unit: str
    about: str
    count: Callable[[Calls], int]
    sees: Callable[[OperatorCall], bool]


@without_compiler()
def calls_of(module: nn.Module, shape: Sequence[int]) -> Calls:
    """The calls of `module` in eval mode on the meta device, for an input of this shape."""
    duplicate = on_meta(module).eval()
    watch = _Watch(duplicate)
    with repeatable(), torch.inference_mode(), watch:
        duplicate(torch.empty(tuple(shape), device="meta"))
    return Calls(duplicate, shape, watch.layers, watch.operators, lambda other: calls_of(module, other))


class _Watch(TorchDispatchMode):
    """In inference mode it sees a composite operator before its parts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        self.layers: list[LayerCall] = []
        self.operators: list[OperatorCall] = []
        self._places = CallSites(module)
        self._running: list[nn.Module] = []
        self._around: list[str] = []
        for each in module.modules():
            each.register_forward_pre_hook(self._enter)
            each.register_forward_hook(self._leave)

    def _enter(self, layer: nn.Module, inputs: Sequence[Any]) -> None:
        self._running.append(layer)

    def _leave(self, layer: nn.Module, inputs: Sequence[Any], output: Any) -> None:
        self._running.pop()
        self.layers.append(LayerCall(layer, inputs, output))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().partition(".")[0].removesuffix("_")
        args, kwargs = on_one_device(args, kwargs or {})
        around = tuple(self._around)
        self._around.append(name)
        try:
            with self:
                output = func.decompose(*args, **kwargs)
            if output is NotImplemented:
                output = func(*args, **kwargs)
        finally:
            self._around.pop()
        place = self._places.forward()
        self.operators.append(OperatorCall(name, args, output, place, around, tuple(self._running)))
        return output


def by_operators(rules: Mapping[str, Rule]) -> tuple[Callable[[Calls], int], Callable[[OperatorCall], bool]]:
    """Count and sight of a tool with rules for operators of a traced pass, where no part of a composite one is seen."""

    def count(calls: Calls) -> int:
        return sum(rules[each.name](each) for each in calls.operators if each.name in rules and not each.around)

    return count, lambda call: (*call.around, call.name)[0] in rules


def by_layers(rules: Mapping[type, LayerRule]) -> tuple[Callable[[Calls], int], Callable[[OperatorCall], bool]]:
    """Count and sight of a tool that hooks layers of these very types."""

    def count(calls: Calls) -> int:
        return sum(rules[type(each.layer)](each) for each in calls.layers if type(each.layer) in rules)

    return count, lambda call: any(type(each) in rules for each in call.layers)


def elements(times: int = 1, of_input: bool = False) -> Rule:
    """So many operations for each element of the output, or of the input."""
    return lambda call: times * (call.args[0] if of_input else first(call.output)).numel()


def first(output: Any) -> Tensor:
    """The tensor that an operator returns, or the first of several."""
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found
