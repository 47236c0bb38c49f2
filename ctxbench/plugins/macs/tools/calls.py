"""Calls of a pass without data: layers, functions, and operators at each level, as other counters see them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import activation
from torch.utils._pytree import tree_leaves

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
    *("torch.einsum", "Tensor.__matmul__", "functional.multi_head_attention_forward"),
)
# Attention in one operator, which `nn.MultiheadAttention` calls in inference without gradients.
NATIVE = "torch._native_multi_head_attention"
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
        found: Tensor = self.given(1)[0]
        return found

    def given(self, number: int) -> Sequence[Any]:
        """Its first arguments. UncountableError where fewer are given by their place."""
        if len(self.inputs) < number:
            kind = type(self.layer).__name__
            raise UncountableError(f"inputs of a {kind} are given by name, which the rules of counters do not read")
        return self.inputs[:number]


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of one of FUNCTIONS, within the submodules `layers` and the functions `within`."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    output: Any
    layers: Sequence[nn.Module]
    within: Sequence[str] = ()

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
        self.in_states: dict[str, Calls] = {}
        self._passes = {} if passes is None else passes
        self._passes[self.shape] = self

    def at(self, shape: Sequence[int]) -> "Calls":
        """The calls for an input of this shape; each shape runs once. UncountableError if it cannot be taken."""
        return self._passes.get(tuple(shape)) or type(self)(self.module, shape, self._passes)

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
        return self._watch.module

    def parents(self, layer: nn.Module) -> int:
        """In how many places of the tree of modules a layer is."""
        return self._places[layer]

    def is_read(self, call: CallWithin) -> bool:
        """Return whether the output of the pass depends on an operator's."""
        return id(call) in self._read

    def has_learned_mask(self, call: CallWithin) -> bool:
        """Return whether the mask of a call of attention comes from a parameter."""
        return len(call.args) > 3 and bool(storages(call.args[3]) & self._learned)

    def whole(self, call: CallWithin) -> CallWithin:
        """The composite call that a call is a part of, or itself."""
        return self._wholes[id(call)]

    @cached_property
    def _wholes(self) -> dict[int, CallWithin]:
        found: dict[int, CallWithin] = {}
        parts: list[CallWithin] = []
        for call in self.operators:  # each after its parts
            parts.append(call)
            if not call.around:
                found |= {id(each): call for each in parts}
                parts.clear()
        return found

    @cached_property
    def _places(self) -> Counter[nn.Module]:
        found: Counter[nn.Module] = Counter()
        stack = [self.copy]
        while stack:
            layer = stack.pop()
            found[layer] += 1
            stack += layer.children()
        return found

    @cached_property
    def _read(self) -> set[int]:
        """The calls on whose outputs, by their storages, the output of the pass depends."""
        needed, read = storages(self._watch.output), set()
        for call in reversed(self.operators):
            if storages(call.output) & needed:
                read.add(id(call))
                needed |= storages(call.args)
        return read

    @cached_property
    def _learned(self) -> set[int]:
        """The storages of what is computed from parameters that need a gradient, and not from the input."""
        own = storages([each for each in self.copy.parameters() if each.requires_grad])
        for call in self.operators:
            if storages(call.args) & own:
                own |= storages(call.output)
        return own

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


@without_compiler()
def _watched(module: nn.Module, shape: Sequence[int]) -> "_Watch":
    watch = _Watch(on_meta(module).eval())
    dtype = next((each.dtype for each in module.parameters() if each.is_floating_point()), None)
    with explained(module, watch), repeatable(), as_written(), torch.inference_mode(), watch.functions_watched(), watch:
        watch.output = watch.module(torch.empty(tuple(shape), device="meta", dtype=dtype))
    return watch


class _Watch(Watch):
    """Sees the layers and functions of a pass of `module`, too."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layers: list[LayerCall] = []
        self.functions: list[FunctionCall] = []
        self.operators: list[CallWithin] = []
        self.output: Any = None
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
            stack.enter_context(patch.object(activation, "_check_arg_device", lambda _: True))
            stack.enter_context(patch.object(torch, "_native_multi_head_attention", self._native))
            torch.backends.mha.set_fastpath_enabled(True)
            yield

    def _native(self, query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any) -> Any:
        """Run attention in one operator by its parts, which are known by it."""
        torch.backends.mha.set_fastpath_enabled(False)
        self._functions.append(NATIVE)
        try:
            layer: nn.Module = self._layers[-1]
            return layer.forward(query, key, value, need_weights=others[7] if len(others) > 7 else True)
        finally:
            self._functions.pop()
            torch.backends.mha.set_fastpath_enabled(True)

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
            within = tuple(self._functions)
            self.functions.append(FunctionCall(name, args, kwargs, output, tuple(self._layers), within))
            return output

        return watched


def storages(values: Any) -> set[int]:
    """The storages of the tensors in a nest of values."""
    return {each.untyped_storage()._cdata for each in tree_leaves(values) if isinstance(each, Tensor)}


def first(output: Any) -> Tensor:
    """The tensor that an operator returns, or the first of several."""
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found
