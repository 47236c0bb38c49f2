"""A table as LaTeX with booktabs: one tabular a part, so that it fits a page."""

import unicodedata
from collections.abc import Iterable

from .table import Cell, Column, Table

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


def render_latex(table: Table) -> str:
    """A `table*` float; the document needs `\\usepackage{booktabs}`. Bold: best; italic: predicted or failed."""
    blocks = [_tabular(table, positions) for positions in table.blocks()]
    notes = [rf"\textsuperscript{{{number}}} {escape(text)}" for number, text in enumerate(table.notes, 1)]
    below = "\\par\n".join([*map(escape, table.caption), *notes])
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape(table.title)}}}",
            "\n\\par\\medskip\n".join(blocks),
            rf"\par\medskip\begin{{minipage}}{{\linewidth}}\scriptsize\raggedright {below}\end{{minipage}}",
            r"\end{table*}",
            "",
        ]
    )


def _tabular(table: Table, positions: list[int]) -> str:
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
    lines += [_line(_cell(table.columns[i], row.cells[i]) for i in positions) for row in table.rows]
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
