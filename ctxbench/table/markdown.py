"""A table as GitHub-flavoured Markdown: one table a part, so that it fits a page."""

import html
import re
from collections.abc import Callable, Iterable

from ctxbench.table.table import Cell, Table, TableColumn

_SPECIAL = re.compile(r"([\\`*_|~])")


def escape(text: str) -> str:
    """Text that Markdown and the HTML inside it show as it is."""
    *parts, last = _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False)).split("]")
    # A bracket is escaped only where it could open a link: what follows its end begins with one of these.
    ends = (after.startswith(("(", "[", ":")) for after in (*parts[1:], last))
    return "]".join(
        [*(part.replace("[", r"\[") if opens else part for part, opens in zip(parts, ends, strict=False)), last]
    )


def paragraph(text: str) -> str:
    """The same as a paragraph of its own: it begins no list, heading or rule."""
    return re.sub(r"^(\d*)([-+#=.)])", r"\1\\\2", escape(text))


def render_markdown(table: Table, *, trusted: bool = False) -> str:
    """The table with its title above, its caption and footnotes below. Bold: best; italic: predicted or failed.

    `trusted`: its texts are Markdown themselves, so they are not escaped.
    """
    written = str if trusted else escape
    title = [f"**{written(table.title)}**"] if table.title else []
    tables = [_block(table, positions, written) for positions in table.blocks()]
    notes = [f"<sup>{number}</sup> {written(text)}" for number, text in enumerate(table.notes, 1)]
    below = [*map(written, table.caption), *notes]
    return "\n\n".join([*title, *tables, *["<br>\n".join(below)] * bool(below)]) + "\n"


def _block(table: Table, positions: list[int], written: Callable[[str], str]) -> str:
    columns = [table.columns[i] for i in positions]
    lines = [_line(_heading(each, written) for each in columns)]
    lines.append(_line("--:" if column.numeric else ":--" for column in columns))
    lines += [_line(_cell(table.columns[i], row.cells[i], written) for i in positions) for row in table.rows]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _heading(column: TableColumn, written: Callable[[str], str]) -> str:
    return f"{written(column.group)}<br>{written(column.header)}" if column.group else written(column.header)


def _cell(column: TableColumn, cell: Cell, written: Callable[[str], str]) -> str:
    if not cell.text:
        return ""
    text = written(cell.text)
    if cell.best:
        text = f"**{text}**"
    if cell.failed or column.origin_of(cell) == "predicted":
        text = f"*{text}*"
    marks = ",".join(map(str, cell.notes))
    return text + (f"<sup>{marks}</sup>" if marks else "")
