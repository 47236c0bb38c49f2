"""A table for the terminal: as many parts side by side as the width allows, the others below."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..tables.caption import Convention
from ..tables.table import Cell, Column, Row, Table

SUPERSCRIPTS = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹ ")
STYLES = {"published": "cyan", "predicted": "magenta", "ratio": "dim"}
GAP = "  "


class TerminalTable:
    """Chooses its layout when it is drawn, from the width that it is given."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.texts = [[plain(cell) for cell in row.cells] for row in table.rows]
        self.widths = [
            max(len(column.short or column.header), *(len(texts[i]) for texts in self.texts), 0)
            for i, column in enumerate(table.columns)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.table.title, style="bold")
        for block in self._blocks(options.max_width):
            yield Text()
            yield from self._draw(block)
        yield Text()
        for line in self.table.caption:
            yield Text(first_clause(line) if isinstance(line, Convention) else line, style="dim")
        for number, text in enumerate(self.table.notes, 1):
            yield Text(f"{str(number).translate(SUPERSCRIPTS)} {text}")

    def _blocks(self, width: int) -> list[list[int]]:
        """Positions of each block's columns: the labels in every block, the status in the first, parts packed in order.

        A part that is too wide by itself is broken up into its groups.
        """
        labels = self.table.labels()
        blocks = [[i for i, column in enumerate(self.table.columns) if column.origin == "status"]]
        for members in self._packs(labels, width):
            if not any(blocks) or self._width([*labels, *blocks[-1], *members]) <= width:
                blocks[-1] += members
            else:
                blocks.append(members)
        return [sorted([*labels, *block]) for block in blocks]

    def _packs(self, labels: list[int], width: int) -> Iterator[list[int]]:
        """Columns that stay side by side: a part or, where that is too wide, a group or, at last, a column."""
        columns = self.table.columns
        for part in dict.fromkeys(column.part for column in columns if column.part):
            members = [i for i, column in enumerate(columns) if column.part == part]
            if self._width([*labels, *members]) <= width:
                yield members
                continue
            for _, group in self._groups(members):
                yield from [group] if self._width([*labels, *group]) <= width else ([i] for i in group)

    def _width(self, block: list[int]) -> int:
        return sum(self._group_width(members) + len(GAP) for _, members in self._groups(sorted(block))) - len(GAP)

    def _groups(self, block: list[int]) -> list[tuple[str, list[int]]]:
        groups = ((heading, [i for i in members if i in block]) for heading, members in self.table.groups())
        return [(heading, members) for heading, members in groups if members]

    def _group_width(self, members: list[int]) -> int:
        heading = self.table.columns[members[0]].group
        return max(len(heading), sum(self.widths[i] for i in members) + len(GAP) * (len(members) - 1))

    def _draw(self, block: list[int]) -> list[Text]:
        groups = self._groups(block)
        top, bottom = Text(style="bold"), Text(style="bold")
        for heading, members in groups:
            top.append(heading.center(self._group_width(members)) + GAP)
            bottom.append_text(self._line(members, [Text(self._header(i)) for i in members])).append(GAP)
        rule = Text(GAP.join("─" * self._group_width(members) for _, members in groups), style="dim")
        lines = [top, bottom, rule] if any(heading for heading, _ in groups) else [bottom, rule]
        for row, texts in zip(self.table.rows, self.texts, strict=True):
            line = Text()
            for _, members in groups:
                shown = [Text(texts[i], style=self._style(row, self.table.columns[i], row.cells[i])) for i in members]
                line.append_text(self._line(members, shown)).append(GAP)
            lines.append(line)
        for line in lines:
            line.rstrip()
        return lines

    def _line(self, members: list[int], texts: list[Text]) -> Text:
        """The cells of one group, filled up to the group's width on the left where they are numbers."""
        line = Text(" " * self._filler(members))
        for position, (index, text) in enumerate(zip(members, texts, strict=True)):
            space = " " * (self.widths[index] - len(text))
            line.append(GAP if position else "")
            line.append_text(Text(space) + text if self.table.columns[index].numeric else text + Text(space))
        return line

    def _filler(self, members: list[int]) -> int:
        return self._group_width(members) - sum(self.widths[i] for i in members) - len(GAP) * (len(members) - 1)

    def _header(self, index: int) -> str:
        column = self.table.columns[index]
        return column.short or column.header

    def _style(self, row: Row, column: Column, cell: Cell) -> str:
        if cell.failed:
            return "bold red"
        style = "red" if row.status != "ok" and column.origin == "label" else STYLES.get(column.origin_of(cell), "")
        return f"bold {style}".strip() if cell.best else style


def first_clause(line: str) -> str:
    """The line up to its first semicolon; reports have all of it."""
    return line.partition(";")[0].rstrip(".") + "."


def plain(cell: Cell) -> str:
    """A cell's text with its footnote numbers in superscript."""
    return (cell.short or cell.text) + ",".join(map(str, cell.notes)).translate(SUPERSCRIPTS)


def render_terminal(table: Table) -> TerminalTable:
    """A rich renderable of the table; `rich.console.Console().print` draws it."""
    return TerminalTable(table)
