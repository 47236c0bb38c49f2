"""Runs operators on the meta device without importing torch.compile and sympy, which takes longer than torch itself.

Shape functions that torch has in Python import both on first use: to say that they are not to be compiled, and to ask
whether a size is symbolic. Here nothing is compiled and every size is a number.
"""

import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"
_SYMBOLS = "torch.fx.experimental.symbolic_shapes"
_ALGEBRA = "sympy"
_FUNCTIONS = "torch.utils._sympy.functions"
_NAMES = (_COMPILER, _SYMBOLS, _ALGEBRA, _FUNCTIONS)
# Functions of _SYMBOLS, for numbers, truth values, tuples of numbers and tensors of such sizes.
_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("expect_true", "guard_or_false", "guard_or_true", "guard_size_oblivious"), bool),
    "statically_known_true": bool,
    "has_guarding_hint": lambda _: True,
    "guarding_hint_or_throw": lambda value: value,
    "is_nested_int": lambda _: False,
    "free_unbacked_symbols": lambda _: set(),
    "sym_eq": operator.eq,
    "sym_or": lambda *values: any(values),
    "sym_and": lambda *values: all(values),
}


class _StandIn(ModuleType):
    """Stands in for a module that is not imported yet; what it does not have is taken from that module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (name != "__path__" or self.__name__ in (_SYMBOLS, _FUNCTIONS)):
            raise AttributeError(name)  # the import system asks for these; __path__ is for a part of a package
        return getattr(_real(self.__name__), name)


class _Expression:
    """Of which no size is one: torch asks whether a number is an expression or a function of sympy."""


class _Settings:
    """Settings of the compiler: the one that a checkpoint notes has its default here; others are taken from it."""

    error_on_nested_fx_trace = True

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(_COMPILER).config, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_real(_COMPILER).config, name, value)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Inside, torch's compiler and symbolic shapes are imported only if something else than the above needs them."""
    if any(isinstance(sys.modules.get(name), _StandIn) for name in _NAMES):
        yield  # inside another
        return
    marked: list[Callable[..., Any]] = []

    def disable(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        marked.append(function)
        return function

    contents: dict[str, dict[str, Any]] = {
        _COMPILER: {"disable": disable, "graph_break": lambda *_: None, "config": _Settings()},
        _SYMBOLS: {name: _on_numbers(name) for name in _ON_NUMBERS},
        _ALGEBRA: {"Basic": _Expression},
        _FUNCTIONS: {"Max": _Expression},
    }
    for name in contents.keys() - sys.modules.keys():
        sys.modules[name] = _StandIn(name)
        vars(sys.modules[name]).update(contents[name])
    try:
        yield
    finally:
        _remove_stand_ins()
        for function in marked:  # torch keeps what `disable` returned (torch/_compile.py)
            vars(function).pop("__dynamo_disable", None)


def has_compiler() -> bool:
    """Return whether torch's compiler is imported."""
    return _COMPILER in sys.modules and not isinstance(sys.modules[_COMPILER], _StandIn)


def _on_numbers(name: str) -> Callable[..., Any]:
    on_numbers = _ON_NUMBERS[name]

    def function(*arguments: Any) -> Any:
        for each in arguments:
            if not isinstance(each, int) and not _is_numbers(each):
                return getattr(_real(_SYMBOLS), name)(*arguments)
        return on_numbers(*arguments)

    return function


def _is_numbers(value: Any) -> bool:
    sizes = getattr(value, "shape", value)  # of a tensor
    return isinstance(sizes, tuple) and all(isinstance(each, int) for each in sizes)


def _real(name: str) -> ModuleType:
    """The module itself, which sees no stand-in while it is imported."""
    removed = _remove_stand_ins()
    module = importlib.import_module(name)
    for other, stand_in in removed.items():
        if other != name:
            sys.modules.setdefault(other, stand_in)
    return module


def end_stand_ins() -> None:
    """Take the stand-ins away for good, in a process that goes on with the compiler."""
    _remove_stand_ins()


def _remove_stand_ins() -> dict[str, ModuleType]:
    found = {name: sys.modules.get(name) for name in _NAMES}
    return {name: sys.modules.pop(name) for name, module in found.items() if isinstance(module, _StandIn)}
