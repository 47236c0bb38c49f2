"""Tables, figures and the page, made from run folders; nothing here imports torch or measures."""

from .tables import comparison_table
from .terminal import render_terminal

__all__ = ["comparison_table", "render_terminal"]
