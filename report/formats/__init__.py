"""How a table is written: one format a file, one line in FORMATS."""

from collections.abc import Callable
from dataclasses import dataclass

from ..tables.table import Table
from .html import render_html
from .latex import render_latex
from .markdown import render_markdown


@dataclass(frozen=True)
class Options:
    """What a reader chooses of how tables are written: the label and the place of the notes of LaTeX."""

    label: str = ""
    notes: str = "below"


# By the ending of the file.
FORMATS: dict[str, Callable[[Table, Options], str]] = {
    "md": lambda table, options: render_markdown(table),
    "tex": lambda table, options: render_latex(table, options.label, options.notes),
    "html": lambda table, options: render_html(table),
    "csv": lambda table, options: table.csv,
}
