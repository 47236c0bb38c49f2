"""A table as GitHub-flavoured Markdown: one table a part, so that it fits a page."""

import html
import re
from collections.abc import Iterable

from ..tables.table import Cell, Column, Table

_SPECIAL = re.compile(r"([\\`*_|~]|\[(?=[^\]]*\][(\[:]))")  # a bracket only where it could open a link


def escape(text: str) -> str:
    """Text that Markdown and the HTML inside it show as it is."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def render_markdown(table: Table) -> str:
    """The table with its caption and footnotes below. Bold: best; italic: predicted or failed."""
    tables = [_block(table, positions) for positions in table.blocks()]
    notes = [f"<sup>{number}</sup> {escape(text)}" for number, text in enumerate(table.notes, 1)]
    below = "<br>\n".join([*map(escape, table.caption), *notes])
    return "\n\n".join([f"**{escape(table.title)}**", *tables, below]) + "\n"


def _block(table: Table, positions: list[int]) -> str:
    columns = [table.columns[i] for i in positions]
    lines = [_line(map(_heading, columns)), _line("--:" if column.numeric else ":--" for column in columns)]
    lines += [_line(_cell(table.columns[i], row.cells[i]) for i in positions) for row in table.rows]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _heading(column: Column) -> str:
    return f"{escape(column.group)}<br>{escape(column.header)}" if column.group else escape(column.header)


def _cell(column: Column, cell: Cell) -> str:
    if not cell.text:
        return ""
    text = escape(cell.text)
    if cell.best:
        text = f"**{text}**"
    if cell.failed or column.origin_of(cell) == "predicted":
        text = f"*{text}*"
    marks = ",".join(map(str, cell.notes))
    return text + (f"<sup>{marks}</sup>" if marks else "")
