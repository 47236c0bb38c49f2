"""ctxbench: benchmark and profile global-context modules, blocks that map [B, C, H, W] to [B, C', H, W]."""

from typing import TYPE_CHECKING, Any

from ctxbench.errors import UsageError
from ctxbench.registry import register

if TYPE_CHECKING:
    from ctxbench.api import Run, load, profile, run
    from ctxbench.functions import check, diff, history, verify

# What is imported on first use, by the file that has it.
LAZY = {
    **dict.fromkeys(("Run", "load", "profile", "run"), "api"),
    **dict.fromkeys(("check", "diff", "history", "verify"), "functions"),
}
__all__ = ["Run", "UsageError", "check", "diff", "history", "load", "profile", "register", "run", "verify"]


def __getattr__(name: str) -> Any:
    """Import the measuring API on first use, so that `import ctxbench` stays light."""
    if name in LAZY:
        from importlib import import_module

        return getattr(import_module(f"ctxbench.{LAZY[name]}"), name)
    raise AttributeError(f"module 'ctxbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names for a user, for `dir` and completion."""
    return __all__
