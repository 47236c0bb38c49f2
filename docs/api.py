"""The list of the Python functions, made of their signatures and the first paragraphs of their docstrings."""

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import ctxbench

# What `dir(ctxbench)` has not. Those of a plugin that is not here are left out.
OTHERS = [
    "ctxbench.table.result:Result",
    "ctxbench.report.write:write_report",
    "ctxbench.plugins.memory.predict:predict_peak",
    "ctxbench.plugins.memory.measure:measure_peak",
    "ctxbench.plugins.memory.remedy:remedies",
    "ctxbench.plugins.verify.testing:assert_context_module",
    "ctxbench.plugins.macs.counter:count_macs",
]


def api_list() -> str:
    """A line for each function and class, in the order of `dir`, then the others; below a class its members."""
    names = [f"ctxbench:{name}" for name in dir(ctxbench)]
    found = {name.replace(":", "."): resolved for name in [*names, *OTHERS] if (resolved := _resolved(name))}
    return "\n".join("\n".join(_lines(name, each)) for name, each in found.items())


def _resolved(name: str) -> Any:
    try:
        return pkgutil.resolve_name(name)
    except ImportError:
        return None


def _lines(name: str, documented: Any) -> Iterator[str]:
    if not inspect.isclass(documented):
        yield f"- `{name}({_arguments(documented)})`: {_first(documented)}"
        return
    yield f"- `{name}`: {_first(documented)}"
    for key, each in vars(documented).items():
        if not key.startswith("_") and each.__doc__:
            yield f"  - `{key}{'()' * callable(each)}`: {_first(each)}"


def _first(documented: Any) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=[.])\s", str(inspect.getdoc(documented)), maxsplit=1)[0].replace("\n", " ")


def _arguments(function: Callable[..., Any]) -> str:
    """The arguments that may stand without their name, with their defaults; dots for the others."""
    every = inspect.signature(function).parameters.values()
    named = [each for each in every if each.kind is each.KEYWORD_ONLY]
    first = [each for each in every if each not in named]
    texts = ["..." if callable(each.default) else repr(each.default) for each in first]
    shown = [each.name + f"={text}" * (each.default is not each.empty) for each, text in zip(first, texts, strict=True)]
    return ", ".join([*shown, *["..."] * bool(named)])
