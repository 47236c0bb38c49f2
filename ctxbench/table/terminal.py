"""A table for the terminal: as many parts side by side as the width allows, the others below."""

import shutil
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ctxbench.base.terminal import console
from ctxbench.base.texts import safe
from ctxbench.table.table import Cell, ConventionLine, Row, Table, TableColumn

SUPERSCRIPTS = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹ ")
STYLES = {"published": "cyan", "predicted": "magenta", "ratio": "dim"}
TONES = {"good": "green", "doubtful": "bold yellow", "bad": "bold red"}
GAP = "  "
# A column of words is broken into lines, down to this part of the width, before other columns go below.
FOLDED = {"label": 3, "text": 6}

# Where there is no terminal, nothing is cut to its width.
WIDTH = 200
# Columns under one heading: (heading, positions).
Groups = Sequence[tuple[str, list[int]]]


class TerminalTable:
    """A table for rich, which chooses its layout when it is drawn, from the width that it is given."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.headers = [column.short or column.header for column in table.columns]
        self.texts = [[safe(plain(cell)) for cell in row.cells] for row in table.rows]
        columns = zip(self.headers, *self.texts, strict=True)
        self.widths = [max(cell_len(line) for text in each for line in text.split("\n")) for each in columns]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        title = [Text(self.table.title, style="bold")] if self.table.title else []
        blocks = (self._draw(block, self._fitted(block, width), console) for block in self._blocks(width))
        for number, section in enumerate(filter(None, [title, *blocks, self._below()])):
            yield from [Text()] if number else []
            yield from section

    def _below(self) -> list[Text]:
        """The caption and the footnotes."""
        lines = [first_clause(line) if isinstance(line, ConventionLine) else line for line in self.table.caption]
        notes = [f"{str(number).translate(SUPERSCRIPTS)} {text}" for number, text in enumerate(self.table.notes, 1)]
        return [*(Text(line, style="dim") for line in lines), *map(Text, notes)]

    def _blocks(self, width: int) -> list[list[int]]:
        """Positions of each block's columns: the labels in every block, the status in the first, parts packed in order.

        A part that is too wide by itself is broken up into its groups. Without labels all columns stay together.
        """
        columns = self.table.columns
        least = [min(own, width // FOLDED.get(each.origin, 1)) for own, each in zip(self.widths, columns, strict=True)]
        labels = self.table.labels()
        if not labels:
            return [list(range(len(columns)))]
        blocks = [[i for i, column in enumerate(columns) if column.origin == "status"]]
        for members in self._packs(labels, least, width):
            if not any(blocks) or self._width([*labels, *blocks[-1], *members], least) <= width:
                blocks[-1] += members
            else:
                blocks.append(members)
        return [sorted([*labels, *block]) for block in blocks]

    def _packs(self, labels: list[int], least: Sequence[int], width: int) -> Iterator[list[int]]:
        """Columns that stay side by side: a part or, where that is too wide, a group or, at last, a column."""
        columns = self.table.columns
        for part in dict.fromkeys(column.part for column in columns if column.part):
            members = [i for i, column in enumerate(columns) if column.part == part]
            if self._width([*labels, *members], least) <= width:
                yield members
                continue
            for _, group in self._groups(members):
                yield from [group] if self._width([*labels, *group], least) <= width else ([i] for i in group)

    def _fitted(self, block: list[int], width: int) -> list[int]:
        """The width of each column: where a block is too wide, its widest columns of words are narrowed."""
        widths = list(self.widths)
        words = [i for i in block if self.table.columns[i].origin in FOLDED]
        while self._width(block, widths) > width and any(widths[i] > 1 for i in words):
            widths[max(words, key=widths.__getitem__)] -= 1
        return widths

    def _width(self, block: list[int], widths: Sequence[int]) -> int:
        groups = self._groups(sorted(block))
        return sum(self._group_width(members, widths) + len(GAP) for _, members in groups) - len(GAP)

    def _groups(self, block: list[int]) -> Groups:
        groups = ((heading, [i for i in members if i in block]) for heading, members in self.table.groups())
        return [(heading, members) for heading, members in groups if members]

    def _group_width(self, members: list[int], widths: Sequence[int]) -> int:
        heading = self.table.columns[members[0]].group
        return max(len(heading), sum(widths[i] for i in members) + len(GAP) * (len(members) - 1))

    def _draw(self, block: list[int], widths: Sequence[int], console: Console) -> list[Text]:
        groups = self._groups(block)
        lines = []
        if any(heading for heading, _ in groups):
            headings = (heading.center(self._group_width(members, widths)) for heading, members in groups)
            lines.append(Text(GAP.join(headings).rstrip(), style="bold"))
        if any(self.headers):
            lines += self._lines(groups, widths, {i: Text(self.headers[i], style="bold") for i in block}, console)
            rule = GAP.join("─" * self._group_width(members, widths) for _, members in groups)
            lines.append(Text(rule, style="dim"))
        for row, texts in zip(self.table.rows, self.texts, strict=True):
            styles = {i: self._style(row, self.table.columns[i], row.cells[i]) for i in block}
            lines += self._lines(groups, widths, {i: Text(texts[i], style=styles[i]) for i in block}, console)
        return lines

    def _lines(self, groups: Groups, widths: Sequence[int], texts: dict[int, Text], console: Console) -> Iterator[Text]:
        """The lines of a row: each group is filled up to its width on the left, as numbers stand on the right."""
        folded = {i: text.wrap(console, widths[i]) for i, text in texts.items()}
        for number in range(max(map(len, folded.values()))):
            line = Text()
            for _, members in groups:
                inner = sum(widths[i] for i in members) + len(GAP) * (len(members) - 1)
                line.append(" " * (self._group_width(members, widths) - inner))
                for i in members:
                    text = folded[i][number] if number < len(folded[i]) else Text()
                    space = Text(" " * (widths[i] - text.cell_len))
                    numeric = self.table.columns[i].numeric
                    line.append_text(space + text if numeric else text + space).append(GAP)
            line.rstrip()
            yield line

    def _style(self, row: Row, column: TableColumn, cell: Cell) -> str:
        if cell.failed:
            return TONES["bad"]
        if cell.tone:
            return TONES[cell.tone]
        style = "red" if row.status != "ok" and column.origin == "label" else STYLES.get(column.origin_of(cell), "")
        return f"bold {style}".strip() if cell.best else style


def first_clause(line: str) -> str:
    """The line up to its first semicolon; reports have all of it."""
    return line.partition(";")[0].rstrip(".") + "."


def plain(cell: Cell) -> str:
    """A cell's text with its footnote numbers in superscript."""
    return (cell.short or cell.text) + ",".join(map(str, cell.notes)).translate(SUPERSCRIPTS)


def as_text(parts: Iterable[Table | str]) -> str:
    """Tables and sentences as the terminal shows them, in plain text."""
    screen = console(width=shutil.get_terminal_size((WIDTH, 0)).columns, styled=False)
    with screen.capture() as captured:
        for part in parts:
            screen.print(Text(part) if isinstance(part, str) else TerminalTable(part), soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
