"""ctxbench: benchmark and profile global-context modules, blocks that map [B, C, H, W] to [B, C', H, W]."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.registry import register

# What is imported on first use, by the file that has it; plugins bring more (`Plugin.functions`). `__init__.pyi` has
# their types.
LAZY = {"api": ("Run", "load", "run"), "report.difference": ("diff",)}
__all__ = [*LAZY["api"], *LAZY["report.difference"], "UsageError", "register"]


def __getattr__(name: str) -> Any:
    """Import the measuring API, and the functions of plugins, on first use, so that `import ctxbench` stays light."""
    for file, names in LAZY.items():
        if name in names:
            return getattr(import_module(f"ctxbench.{file}"), name)
    # `from ctxbench import devices` asks for the name before it imports the file.
    if not name.startswith("_") and find_spec(f"ctxbench.{name}") is None:
        for plugin, (function, reference) in _functions():
            if function == name:
                return plugin.load(reference)
    raise AttributeError(f"module 'ctxbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names for a user, for `dir` and completion."""
    return sorted([*__all__, *(name for _, (name, _) in _functions())])


def _functions() -> Any:
    """Functions of plugins by name. PluginError for a name that the core has."""
    from ctxbench.plugin import PluginError, brought

    found = list(brought("functions"))
    for plugin, (name, _) in found:
        if name in __all__:
            raise PluginError(f"the plugin {plugin.name} brings the function {name!r}, which ctxbench itself has")
    return found
