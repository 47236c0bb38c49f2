"""ctxbench: benchmark and profile global-context modules, blocks that map [B, C, H, W] to [B, C', H, W]."""

from typing import TYPE_CHECKING, Any

from ctxbench.errors import UsageError
from ctxbench.registry import register

if TYPE_CHECKING:
    from ctxbench.api import Run, load, profile, run

__all__ = ["Run", "UsageError", "load", "profile", "register", "run"]


def __getattr__(name: str) -> Any:
    """Import the measuring API on first use, so that `import ctxbench` stays light."""
    if name in ("Run", "load", "profile", "run"):
        from ctxbench import api

        return getattr(api, name)
    raise AttributeError(f"module 'ctxbench' has no attribute {name!r}")
