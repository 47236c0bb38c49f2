"""ctxbench: benchmark and profile global-context modules, blocks that map [B, C, H, W] to [B, C', H, W]."""

from typing import TYPE_CHECKING, Any

from ctxbench.errors import UsageError
from ctxbench.registry import register

if TYPE_CHECKING:
    from ctxbench.api import Run, load, profile, run
    from ctxbench.functions import check, compare, diff, history, verify
    from ctxbench.predictions import choose, predict_memory, predict_time

# What is imported on first use, by the file that has it.
LAZY = {
    "api": ("Run", "load", "profile", "run"),
    "functions": ("check", "compare", "diff", "history", "verify"),
    "predictions": ("choose", "predict_memory", "predict_time"),
}
__all__ = [
    "Run",
    "UsageError",
    "check",
    "choose",
    "compare",
    "diff",
    "history",
    "load",
    "predict_memory",
    "predict_time",
    "profile",
    "register",
    "run",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import the measuring API on first use, so that `import ctxbench` stays light."""
    for file, names in LAZY.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"ctxbench.{file}"), name)
    raise AttributeError(f"module 'ctxbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names for a user, for `dir` and completion."""
    return __all__
