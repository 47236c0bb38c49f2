"""Tables, figures and the page, made from run folders; nothing here imports torch or measures."""

from typing import TYPE_CHECKING, Any

from .formats.terminal import render_terminal
from .tables.suite import comparison_table

if TYPE_CHECKING:
    from .write import write_report

__all__ = ["comparison_table", "render_terminal", "write_report"]


def __getattr__(name: str) -> Any:
    """Import what draws figures on first use: matplotlib takes a second."""
    if name == "write_report":
        from .write import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
