"""A table as LaTeX with booktabs: one tabular a part, so that it fits a page."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from ctxbench.base.load import OTHERS_LIMIT
from ctxbench.base.notes import BROKEN, DISTURBED, Note
from ctxbench.table.table import Cell, Row, Table, TableColumn

# More lines of a table do not fit a page.
ROWS = 40
# Letters of 8 pt in a column of 3.3 inches, and those that the space between two columns of a table takes.
COLUMN, GAP = 56, 1.5
# The size of a table's text, and the space beside its columns.
SPACING = r"\footnotesize\setlength{\tabcolsep}{3pt}"
# Where notes may stand, and how a cell refers to one.
NOTES = dict.fromkeys(("below", "short", "none"), r"\textsuperscript{%s}") | {"threeparttable": r"\tnote{%s}"}

# Notes that no option takes away: of times that were disturbed, and of a module that breaks the contract.
KEPT = [str(Note(DISTURBED, {"limit": OTHERS_LIMIT})), str(Note(BROKEN))]

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
    "–": r"\textendash{}",  # noqa: RUF001  # the dash for "none"
} | {character: f"\\{character}" for character in "&%$#_{}"}
# Letters of a heading over one column.
_LONG_HEADING = 24


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, two hyphens apart; a character beyond ASCII is decomposed, or named by its code
    point.
    """
    return re.sub("-(?=-)", "-{}", "".join(_escaped(character) for character in " ".join(text.split())))


def _escaped(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character if character.isprintable() else " "
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_SPECIAL.get(c, c) for c in plain) or f"U+{ord(character):04X}"


def render_latex(table: Table, label: str = "", notes: str = "below") -> str:
    """Floats, one for each part and each ROWS rows, so that each fits a page; notes stand in the last.

    A part that fits a column of a page of two is a `table`, a wider one a `table*`.

    `notes` is one of NOTES: "short" has the first clause of each in one paragraph; with "none" those stay that say that
    a number is not to be relied on. The document needs `\\usepackage{booktabs}`, and the package threeparttable if the
    notes are its. Bold: best; italic: predicted or failed.
    """
    tabulars = _tabulars(table, notes)
    floats = []
    for number, (positions, tabular) in enumerate(tabulars, 1):
        continued = f" ({number} of {len(tabulars)})" if len(tabulars) > 1 else ""
        inside = [
            rf"\caption{{{escape(table.title + continued)}}}",
            rf"\label{{{label}}}" if label and number == 1 else "",
            tabular,
            _notes(table, notes) if number == len(tabulars) else "",
        ]
        if notes == "threeparttable":
            inside = [r"\begin{threeparttable}", *inside, r"\end{threeparttable}"]
        kind = "table" if _fits(table, positions) else "table*"
        lines = [rf"\begin{{{kind}}}", rf"\centering{SPACING}", *inside, rf"\end{{{kind}}}"]
        floats.append("\n".join(line for line in lines if line))
    needed = ["booktabs", *(["threeparttable"] if notes == "threeparttable" else [])]
    return "\n\n".join([f"% needs \\usepackage{{{','.join(needed)}}}", *floats]) + "\n"


def render_tabular(table: Table) -> str:
    """The tabulars alone, without float, caption and notes, to be put into a table of one's own; each says how wide."""
    parts = []
    for positions, tabular in _tabulars(table, "none"):
        width = (
            "fits a column"
            if _fits(table, positions)
            else "wider than a column of two: for table*, or choose fewer --columns"
        )
        parts.append(f"% {width}\n{{{SPACING}\n{tabular}}}")
    return "\n\n".join(["% needs \\usepackage{booktabs}", *parts]) + "\n"


def _tabulars(table: Table, notes: str) -> list[tuple[list[int], str]]:
    """The places of the columns of each part, and its tabular."""
    pieces = [table.rows[start : start + ROWS] for start in range(0, max(len(table.rows), 1), ROWS)]
    kept = {n for n, text in enumerate(table.notes, 1) if notes != "none" or text in KEPT}
    parts = [(positions, rows) for positions in table.blocks() for rows in pieces]
    return [(positions, _tabular(table, positions, rows, notes, kept)) for positions, rows in parts]


def _fits(table: Table, positions: Sequence[int]) -> bool:
    """Return whether columns, with the space between two, fit a column of text; what is broken into lines does not."""
    columns = [table.columns[i] for i in positions]
    if any(column.origin == "text" for column in columns):
        return False
    longest = {
        i: max(len(text) for text in (table.columns[i].header, *(row.cells[i].text for row in table.rows)))
        for i in positions
    }
    width = GAP * len(columns)
    for heading, members in table.groups():
        inside = [longest[i] for i in members if i in longest]
        width += max(len(heading) if inside else 0, sum(inside))
    return width <= COLUMN


def _notes(table: Table, notes: str) -> str:
    """The caption's lines and the footnotes."""
    lines, texts = [escape(line) for line in table.caption], [escape(text) for text in table.notes]
    if notes == "threeparttable":
        items = [rf"\item {line}" for line in lines] + [rf"\item[{n}] {text}" for n, text in enumerate(texts, 1)]
        return "\n".join([r"\begin{tablenotes}[flushleft]\scriptsize", *items, r"\end{tablenotes}"])
    numbered = [(n, text) for n, text in enumerate(texts, 1) if notes != "none" or table.notes[n - 1] in KEPT]
    if notes == "none":
        lines = []
    if not lines and not numbered:
        return ""
    every = [*lines, *(f"{_mark([n], notes)} {text}" for n, text in numbered)]
    if notes == "short":
        every = [f"{text.partition('; ')[0].removesuffix('.')}." for text in every]
    below = (" " if notes == "short" else "\\par\n").join(every)
    return rf"\par\medskip\begin{{minipage}}{{\linewidth}}\scriptsize\raggedright {below}\end{{minipage}}"


def _mark(numbers: Sequence[int], notes: str) -> str:
    """References to footnotes."""
    return NOTES[notes] % ",".join(map(str, numbers)) if numbers else ""


def _stacked(heading: str, columns: int) -> str:
    """A heading of many letters over one column has its unit below it: it alone decides how wide the column is."""
    title, bracket, unit = heading.rpartition(" (")
    if columns > 1 or not bracket or len(heading) < _LONG_HEADING:
        return escape(heading)
    return rf"\shortstack{{{escape(title)}\\({escape(unit)}}}"


def _tabular(table: Table, positions: list[int], rows: Sequence[Row], notes: str, kept: Collection[int]) -> str:
    columns = [table.columns[i] for i in positions]
    top, rules = [], []
    for heading, members in table.groups():
        inside = [positions.index(i) + 1 for i in members if i in positions]
        if inside and heading:
            top.append(rf"\multicolumn{{{len(inside)}}}{{c}}{{{_stacked(heading, len(inside))}}}")
            rules.append(rf"\cmidrule(lr){{{inside[0]}-{inside[-1]}}}")
        else:
            top += [""] * len(inside)
    lines = [rf"\begin{{tabular}}{{{''.join(_alignment(column, columns) for column in columns)}}}", r"\toprule"]
    lines += [_line(top), "".join(rules)] if rules else []
    lines += [_line(escape(column.header) for column in columns), r"\midrule"]
    lines += [_line(_cell(table.columns[i], row.cells[i], notes, kept) for i in positions) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _alignment(column: TableColumn, columns: Sequence[TableColumn]) -> str:
    """Right for numbers; beside sentences, equal shares of the line, in which text is broken."""
    if any(each.origin == "text" for each in columns):
        return rf"p{{{0.92 / len(columns):.2f}\linewidth}}"
    return "r" if column.numeric else "l"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(column: TableColumn, cell: Cell, notes: str, kept: Collection[int]) -> str:
    text = escape(cell.text)
    if cell.best:
        text = rf"\textbf{{{text}}}"
    if text and (cell.failed or column.origin_of(cell) == "predicted"):
        text = rf"\textit{{{text}}}"
    return text + _mark([number for number in cell.notes if number in kept], notes)
