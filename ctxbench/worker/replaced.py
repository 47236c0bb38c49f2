"""Monkey-patches by a module of Python, time and torch, which everything else in its process then uses.

What was there before is what there is when this file is imported: import it before a module's code.
"""

import builtins
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import torch

_PLACES: dict[str, ModuleType | type] = {
    "builtins": builtins,
    "time": time,
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.Module": torch.nn.Module,
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    "torch.autograd": torch.autograd,
    "torch.cuda": torch.cuda,
}


def _functions(place: ModuleType | type) -> Mapping[str, object]:
    """The functions and classes of a module, or of a class and its bases; without the private ones of a module."""
    if isinstance(place, ModuleType):
        return {name: each for name, each in vars(place).items() if callable(each) and not name.startswith("_")}
    return {name: each for base in reversed(place.mro()) for name, each in vars(base).items() if callable(each)}


# What no pass calls: torch.set_default_dtype puts another Storage there, and packages wrap what reads and writes files.
_UNUSED = ("torch.Storage", "torch.load", "torch.save")
_BEFORE = {name: _functions(place) for name, place in _PLACES.items()}


def replaced() -> list[str]:
    """The names, such as `time.perf_counter`, that are now something else; but what torch itself puts there later."""
    now = {name: _functions(place) for name, place in _PLACES.items()}
    return [
        f"{place}.{name}"
        for place, functions in _BEFORE.items()
        for name, function in functions.items()
        if now[place].get(name) is not function
        and not _is_from_torch(now[place].get(name))
        and f"{place}.{name}" not in _UNUSED
    ]


def _is_from_torch(function: object) -> bool:
    """Return whether a Python function was written in torch's folder; the compiler wraps some when it is imported."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(torch.__file__).parent in Path(code.co_filename).parents
