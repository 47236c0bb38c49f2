"""Table: columns, rows of cells, caption, numbered footnotes; every format is rendered from this."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from ctxbench.base.texts import safe
from ctxbench.table.numbers import Numbers

if TYPE_CHECKING:
    import pandas as pd

# How a number was obtained. `label` is text that names a row, `ratio` is here over published (or run over run), `text`
# is sentences, which may be broken into lines.
Origin = Literal["label", "published", "counted", "predicted", "measured", "ratio", "status", "text"]
# More rows than a person reads are in the CSV alone.
ROW_LIMIT = 1000
NUMERIC_ORIGINS = ("published", "counted", "predicted", "measured", "ratio")
Tone = Literal["", "good", "doubtful", "bad"]


class _Safe:
    """Base of the parts of a table: each text in it is safe, whatever format shows it."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isprintable():
                object.__setattr__(self, name, safe(value))
            elif isinstance(value, tuple) and any(isinstance(each, str) and not each.isprintable() for each in value):
                object.__setattr__(self, name, tuple(map(safe, value)))


@dataclass(frozen=True)
class Cell(_Safe):
    """One entry. `value` sorts it, `notes` are footnote numbers, `detail` says more than fits.

    `short` serves narrow places. `failed`: the text is the status of a row that has no number here. `origin` is how the
    number was obtained, where its column holds numbers of several origins. `tone` is how good a verdict is.
    """

    text: str = ""
    value: float | None = None
    best: bool = False
    notes: tuple[int, ...] = ()
    detail: str = ""
    short: str = ""
    failed: bool = False
    origin: Origin | None = None
    tone: Tone = ""


@dataclass(frozen=True)
class TableColumn(_Safe):
    """A column: `group` spans neighbours that share it; columns of one `part` stay together where width is short.

    `origin` is that of each cell that has none of its own.
    """

    key: str
    group: str
    header: str
    origin: Origin
    part: str = ""
    short: str = ""

    @property
    def numeric(self) -> bool:
        return self.origin in NUMERIC_ORIGINS

    def origin_of(self, cell: Cell) -> Origin:
        return cell.origin or self.origin

    @property
    def name(self) -> str:
        """Group and header as one phrase, unique in a table."""
        return f"{self.group}: {self.header}" if self.group else self.header


@dataclass(frozen=True)
class Row(_Safe):
    """One case: its cells in the order of the columns, and what a page filters by."""

    cells: tuple[Cell, ...]
    module: str = ""
    family: str = ""
    status: str = "ok"


@dataclass(frozen=True)
class Table(_Safe):
    """A table. `numbers` makes every row as plain numbers.

    `rows` may stop earlier, and then `caption` says so.
    """

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[Row, ...]
    caption: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: Callable[[], Numbers] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def plain(self) -> Numbers:
        """All rows as plain numbers, by the keys of columns; the texts of the cells, if there are no others."""
        if self.numbers is not None:
            return self.numbers()
        return Numbers({column.key: [row.cells[i].text for row in self.rows] for i, column in enumerate(self.columns)})

    @property
    def data(self) -> "pd.DataFrame":
        """The same as a data frame."""
        return self.plain.frame

    @property
    def stem(self) -> str:
        """The name as a file name: a suite may be called anything."""
        return re.sub(r"[^\w.-]+", "-", self.name).strip(".-") or "table"

    @cached_property
    def csv(self) -> str:
        """All rows as plain numbers."""
        return self.plain.csv

    def labels(self) -> list[int]:
        """The positions of the columns that name a row."""
        return [i for i, column in enumerate(self.columns) if column.origin == "label"]

    def blocks(self) -> list[list[int]]:
        """Positions of the columns of each part with the labels before them; the status stands in the first."""
        status = [i for i, column in enumerate(self.columns) if column.origin == "status"]
        parts = dict.fromkeys(column.part for column in self.columns if column.part)
        blocks = [[i for i, column in enumerate(self.columns) if column.part == part] for part in parts] or [[]]
        blocks[0] += status
        return [self.labels() + block for block in blocks]

    def groups(self) -> list[tuple[str, list[int]]]:
        """Neighbouring columns under one heading: (heading, positions); an empty heading stands alone."""
        found: list[tuple[str, list[int]]] = []
        for index, column in enumerate(self.columns):
            if found and column.group and found[-1][0] == column.group:
                found[-1][1].append(index)
            else:
                found.append((column.group, [index]))
        return found


class Footnotes:
    """Numbers notes in the order in which they are first used; the same sentence has one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._numbers)


class ConventionLine(str):
    """A line of a caption that says what numbers are. Its first clause is enough where there is little room."""

    __slots__ = ()


def plain_table(headings: Mapping[str, Origin], rows: Iterable[Sequence[str | Cell]], title: str = "") -> Table:
    """A table of texts: what stands over each column and how its cells were obtained, those that name a row first."""
    columns = [
        TableColumn(each, "", each, origin, "" if origin == "label" else "all") for each, origin in headings.items()
    ]
    cells = ([Cell(each) if isinstance(each, str) else each for each in row] for row in rows)
    return Table("", title, tuple(columns), tuple(Row(tuple(row)) for row in cells))
