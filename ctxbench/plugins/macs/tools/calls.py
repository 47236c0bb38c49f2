"""Calls of a pass without data: layers, functions, and operators at each level, as other counters see them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.errors import text_of
from ctxbench.meta.as_written import as_written
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.watch import OperatorCall
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.rules import PRODUCTS
from ctxbench.plugins.macs.watch import UncountableError, Watch, explained, repeatable

# What counters put their own functions in the place of.
CONVOLUTIONS = tuple(f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3))
POOLS = tuple(f"{kind}_pool{axes}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for axes in (1, 2, 3))
_ACTIVATIONS = ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu", "hardswish", "softmax", "log_softmax")
_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm")
_OF_LAYERS = (
    *CONVOLUTIONS, *POOLS, *_ACTIVATIONS, *_NORMS, "linear", "interpolate", "upsample", "scaled_dot_product_attention",
)  # fmt: skip
_OF_TENSORS = ("matmul", "mm", "bmm", "addmm", "baddbmm", "mul", "add")
FUNCTIONS = (
    *(f"functional.{name}" for name in _OF_LAYERS),
    *(f"{owner}.{name}" for owner in ("torch", "Tensor") for name in _OF_TENSORS),
    "torch.einsum",
    "Tensor.__matmul__",
)
_OWNERS: dict[str, Any] = {"functional": functional, "torch": torch, "Tensor": Tensor}


@dataclass(eq=False)
class CallWithin(OperatorCall):
    """An operator call within these functions and submodules."""

    functions: Sequence[str] = ()
    layers: Sequence[nn.Module] = ()

    @property
    def macs(self) -> int:
        """Its multiply-accumulates, if it is a product or a convolution, and no part of one."""
        rule = PRODUCTS.get(self.name)
        return 0 if rule is None or PRODUCTS.keys() & {*self.around} else rule(self.args, self.output)


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A call of a submodule: the tensors that it is given, and its output."""

    layer: Any
    inputs: Sequence[Any]
    output: Any

    @property
    def input(self) -> Tensor:
        """Its first argument."""
        found: Tensor = self.inputs[0]
        return found


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of one of FUNCTIONS, within the submodules `layers`."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    output: Any
    layers: Sequence[nn.Module]

    def argument(self, place: int, name: str) -> Any:
        """An argument by its place or its name; None if it was not given."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)

    @property
    def input(self) -> Tensor:
        """Its first argument."""
        found: Tensor = self.argument(0, "input")
        return found


class Calls:
    """Calls of a pass of a module in eval mode on the meta device, each after its parts; it runs when they are read."""

    def __init__(self, module: nn.Module, shape: Sequence[int], passes: "dict[Sequence[int], Calls] | None" = None):
        self.module, self.shape = module, tuple(shape)
        self._passes = {} if passes is None else passes
        self._passes[self.shape] = self

    def at(self, shape: Sequence[int]) -> "Calls":
        """The calls for an input of this shape; each shape runs once. UncountableError if it cannot be taken."""
        return self._passes.get(tuple(shape)) or Calls(self.module, shape, self._passes)

    @property
    def layers(self) -> Sequence[LayerCall]:
        return self._watch.layers

    @property
    def functions(self) -> Sequence[FunctionCall]:
        return self._watch.functions

    @property
    def operators(self) -> Sequence[CallWithin]:
        return self._watch.operators

    @property
    def copy(self) -> nn.Module:
        """The copy of the module that ran."""
        return self._watch.module

    @cached_property
    def _watch(self) -> "_Watch":
        try:
            return _watched(self.module, self.shape)
        except Exception as error:
            if next(iter(self._passes)) == self.shape:
                raise
            raise UncountableError(f"an input of {self.shape} is not taken: {text_of(error)}") from error


Rule = Callable[[CallWithin], int]
LayerRule = Callable[[LayerCall], int]
FunctionRule = Callable[[FunctionCall], int]
Counting = tuple[Callable[[Calls], int], Callable[[CallWithin], bool]]


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
    sees: Callable[[CallWithin], bool]


@without_compiler()
def _watched(module: nn.Module, shape: Sequence[int]) -> "_Watch":
    watch = _Watch(on_meta(module).eval())
    dtype = next((each.dtype for each in module.parameters() if each.is_floating_point()), None)
    with explained(module, watch), repeatable(), as_written(), torch.inference_mode(), watch.functions_watched(), watch:
        watch.module(torch.empty(tuple(shape), device="meta", dtype=dtype))
    return watch


class _Watch(Watch):
    """Sees the layers and functions of a pass of `module`, too."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layers: list[LayerCall] = []
        self.functions: list[FunctionCall] = []
        self.operators: list[CallWithin] = []
        self._functions: list[str] = []
        self._layers: list[nn.Module] = []
        super().__init__(module, self._keep)
        for each in module.modules():
            each.register_forward_pre_hook(self._enter)
            each.register_forward_hook(self._leave)

    def _keep(self, call: OperatorCall) -> None:
        _ = call.place  # found while the call goes on
        self.operators.append(CallWithin(**vars(call), functions=(*self._functions,), layers=(*self._layers,)))

    def _enter(self, layer: nn.Module, inputs: Sequence[Any]) -> None:
        self._layers.append(layer)

    def _leave(self, layer: nn.Module, inputs: Sequence[Any], output: Any) -> None:
        self._layers.pop()
        self.layers.append(LayerCall(layer, inputs, output))

    @contextmanager
    def functions_watched(self) -> Iterator[None]:
        """Put a watched function in the place of each of FUNCTIONS."""
        with ExitStack() as stack:
            for name in FUNCTIONS:
                owner, _, attribute = name.rpartition(".")
                place = _OWNERS[owner]
                watched = self._watched(name, getattr(place, attribute))
                stack.enter_context(patch.object(place, attribute, watched))
            yield

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self.around:  # on the meta device, operators call functions
                return function(*args, **kwargs)
            self._functions.append(name)
            try:
                output = function(*args, **kwargs)
            finally:
                self._functions.pop()
            self.functions.append(FunctionCall(name, args, kwargs, output, tuple(self._layers)))
            return output

        return watched


def layers(*names: str) -> list[type]:
    """The layers of these names for one, two and three axes, such as `Conv` of `nn.Conv2d`."""
    return [getattr(nn, f"{name}{axes}d") for name in names for axes in (1, 2, 3)]


def by_operators(rules: Mapping[str, Rule]) -> Counting:
    """Count and sight of a tool with rules for operators of a traced pass, where no part of a composite one is seen."""
    return (
        lambda calls: _total(rules, [each for each in calls.operators if not each.around], lambda call: call.name),
        lambda call: (*call.around, call.name)[0] in rules,
    )


def by_layers(rules: Mapping[type, LayerRule]) -> Counting:
    """Count and sight of a tool that hooks layers of these very types."""
    return (
        lambda calls: _total(rules, calls.layers, lambda call: type(call.layer)),
        lambda call: any(type(each) in rules for each in call.layers),
    )


def by_functions(rules: Mapping[str, FunctionRule]) -> Counting:
    """Count and sight of a tool that puts its own in the place of these functions."""
    return (
        lambda calls: _total(rules, calls.functions, lambda call: call.name),
        lambda call: any(name in rules for name in call.functions),
    )


def _total(rules: Mapping[Any, Callable[[Any], int]], calls: Sequence[Any], key: Callable[[Any], Any]) -> int:
    return sum(rules[key(each)](each) for each in calls if key(each) in rules)


def of_one_image(count: Callable[[Calls], int]) -> Callable[[Calls], int]:
    """A count of a tool that makes its own input, of one image."""
    return lambda calls: count(calls.at((1, *calls.shape[1:])))


def elements(times: int = 1, of_input: bool = False) -> Rule:
    """So many operations for each element of the output, or of the input."""
    return lambda call: times * (call.args[0] if of_input else first(call.output)).numel()


def first(output: Any) -> Tensor:
    """The tensor that an operator returns, or the first of several."""
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found
