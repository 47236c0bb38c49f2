"""A table as LaTeX with booktabs: one tabular a part, so that it fits a page."""

import unicodedata
from collections.abc import Iterable, Sequence

from .table import Cell, Column, Row, Table

# More lines of a table do not fit a page.
ROWS = 40

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",
    "]": "{]}",
    "-": "{-}",
    "–": "--",  # noqa: RUF001  # the dash for "none"
} | {character: f"\\{character}" for character in "&%$#_{}"}


def escape(text: str) -> str:
    """Text that LaTeX prints as it is; a character beyond ASCII is decomposed, or named by its code point."""
    return "".join(_escaped(character) for character in " ".join(text.split()))


def _escaped(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character if character.isprintable() else " "
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_SPECIAL.get(c, c) for c in plain) or f"U+{ord(character):04X}"


def render_latex(table: Table, label: str = "", notes: bool = True) -> str:
    """Floats `table*`, one for each part and each ROWS rows, so that each fits a page; `notes` stand below the last.

    The document needs `\\usepackage{booktabs}`. Bold: best; italic: predicted or failed.
    """
    pieces = [table.rows[start : start + ROWS] for start in range(0, max(len(table.rows), 1), ROWS)]
    tabulars = [_tabular(table, positions, rows) for positions in table.blocks() for rows in pieces]
    marks = [rf"\textsuperscript{{{number}}} {escape(text)}" for number, text in enumerate(table.notes, 1)]
    below = "\\par\n".join([*map(escape, table.caption), *marks])
    floats = []
    for number, tabular in enumerate(tabulars, 1):
        continued = f" ({number} of {len(tabulars)})" if len(tabulars) > 1 else ""
        lines = [
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape(table.title + continued)}}}",
            rf"\label{{{label}}}" if label and number == 1 else "",
            tabular,
            rf"\par\medskip\begin{{minipage}}{{\linewidth}}\scriptsize\raggedright {below}\end{{minipage}}"
            if notes and number == len(tabulars)
            else "",
            r"\end{table*}",
        ]
        floats.append("\n".join(line for line in lines if line))
    return "\n\n".join(["% needs \\usepackage{booktabs}", *floats]) + "\n"


def _tabular(table: Table, positions: list[int], rows: Sequence[Row]) -> str:
    columns = [table.columns[i] for i in positions]
    top, rules = [], []
    for heading, members in table.groups():
        inside = [positions.index(i) + 1 for i in members if i in positions]
        if inside and heading:
            top.append(rf"\multicolumn{{{len(inside)}}}{{c}}{{{escape(heading)}}}")
            rules.append(rf"\cmidrule(lr){{{inside[0]}-{inside[-1]}}}")
        else:
            top += [""] * len(inside)
    lines = [rf"\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns)}}}", r"\toprule"]
    lines += [_line(top), "".join(rules)] if rules else []
    lines += [_line(escape(column.header) for column in columns), r"\midrule"]
    lines += [_line(_cell(table.columns[i], row.cells[i]) for i in positions) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(column: Column, cell: Cell) -> str:
    text = escape(cell.text)
    if cell.best:
        text = rf"\textbf{{{text}}}"
    if text and (cell.failed or column.origin == "predicted"):
        text = rf"\textit{{{text}}}"
    marks = ",".join(map(str, cell.notes))
    return text + (rf"\textsuperscript{{{marks}}}" if marks else "")
