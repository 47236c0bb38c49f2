"""The ways of running a module, one a file: every file of this folder that declares an `EXECUTION` is one.

Imports no torch and no runtime: suites and commands read names and modes from here.
"""

import importlib
import pkgutil
from functools import cache

from ctxbench.errors import unknown
from ctxbench.executions.base import Execution

__all__ = ["Execution", "execution", "executions"]


@cache
def executions() -> dict[str, Execution]:
    """All ways by name, torch's own first."""
    files = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    declared: list[Execution] = [file.EXECUTION for file in files if hasattr(file, "EXECUTION")]
    return {each.name: each for each in sorted(declared, key=lambda each: (each.place, each.name))}


def execution(name: str) -> Execution:
    """The way of a name. UsageError with the nearest name if there is none."""
    if name not in executions():
        raise unknown("execution", name, executions())
    return executions()[name]
