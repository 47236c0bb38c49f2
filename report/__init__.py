"""Tables, figures and the page, made from run folders; nothing here imports torch or measures."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .write import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    """Import what reads runs and draws figures on first use: pandas and matplotlib take a second each."""
    if name == "write_report":
        from .write import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
