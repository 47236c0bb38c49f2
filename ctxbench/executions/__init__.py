"""The ways of running a module, one a file: every file of this folder that declares an `EXECUTION`, and of plugins.

Imports no torch and no runtime: suites and commands read names and modes from here.
"""

import importlib
import pkgutil
from functools import cache

from ctxbench.base.errors import unknown
from ctxbench.executions.base import Execution
from ctxbench.plugin import loaded

__all__ = ["Execution", "execution", "executions"]


@cache
def executions() -> dict[str, Execution]:
    """All ways by name, torch's own first."""
    files = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    declared: list[Execution] = [file.EXECUTION for file in files if hasattr(file, "EXECUTION")]
    declared += loaded("executions")
    return in_order(declared)


def in_order(declared: list[Execution]) -> dict[str, Execution]:
    """The ways by name, by `order`. ValueError for a name that is taken."""
    found: dict[str, Execution] = {}
    for each in sorted(declared, key=lambda each: (each.order, each.name)):
        if other := found.get(each.name):
            raise ValueError(
                f"The execution {each.name} is declared twice, in {type(other).__module__} and {type(each).__module__}."
            )
        found[each.name] = each
    return found


def execution(name: str) -> Execution:
    """The way of a name. UsageError with the nearest name if there is none."""
    if name not in executions():
        raise unknown("execution", name, executions())
    return executions()[name]
