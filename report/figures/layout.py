"""Layout shared by figures: a part for each panel below the line that names its input, families, wrapped names."""

import itertools
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from ctxbench.base.errors import UsageError
from ctxbench.model.metric import RecordRow

from ..panels import Panel, marked_label_of
from .style import FAMILIES, SMALL, TITLE, new_figure

# Characters of a line of a name.
NAME = 24
_COLUMNS = 4
# Inches: a line and a character of small text, the same of the title, the key of a legend's entry with its gaps.
LINE, CHARACTER, _TITLE, _TITLE_CHARACTER, KEY = 0.14, 0.058, 0.2, 0.072, 0.5
# Inches that a family's name takes below a figure.
_FAMILY = 1.5
# Widths of figures by name, inches, as conferences with two columns have them; and what other widths may be.
WIDTHS = {"column": 3.3, "page": 6.9}
NARROWEST, WIDEST = 3.0, 20.0
# Behind a space or punctuation and before a bracket.
_BREAKS = re.compile(r"(?<=[ :_/-])|(?=[(\[])")


@dataclass(frozen=True)
class FigureSize:
    """Printed width of a figure in inches, with or without a title and the rows' common conditions above it."""

    width: float = WIDTHS["page"]
    heading: bool = True

    @classmethod
    def of(cls, width: str, heading: bool = True) -> Self:
        """The sheet of a width as a person gives it: a name of WIDTHS, or inches. UsageError for another text."""
        try:
            inches = WIDTHS[width] if width in WIDTHS else float(width)
        except ValueError:
            inches = 0.0
        if not NARROWEST <= inches <= WIDEST:
            names = ", ".join(f"{name} ({each} in)" for name, each in WIDTHS.items())
            raise UsageError(
                f"--width is {width!r}; it takes {names} or a number of inches from {NARROWEST:g} to {WIDEST:g}"
            )
        return cls(inches, heading)

    def columns(self, least: float, most: int, beside: float = 0.0) -> int:
        """Number of axes side by side, each `least` inches wide: at most `most`, with `beside` left for names."""
        return max(1, min(most, int((self.width - beside) / least)))


PAGE = FigureSize()


class OfPanel(Protocol):
    """Part of a figure for one panel."""

    @property
    def panel(self) -> Panel: ...


OnPanel = TypeVar("OnPanel", bound=OfPanel)


def _pieces(text: str) -> list[str]:
    """The text in the parts between which a line may end: not inside square brackets."""
    inside, is_inside = [False] * (len(text) + 1), False
    for place in reversed(range(len(text))):
        is_inside = text[place] == "]" or (is_inside and text[place] != "[")
        inside[place] = is_inside
    ends = [0, *(each.start() for each in _BREAKS.finditer(text) if not inside[each.start()]), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` characters, broken behind a space or punctuation where there is one."""
    lines = [""]
    for piece in _pieces(text):
        if len(lines[-1]) + len(piece.rstrip()) > width and lines[-1]:
            lines.append("")
        while len(piece.rstrip()) > width:
            lines[-1], piece = piece[:width], piece[width:]
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True)
class RowLabels:
    """The labels of rows beside an axis, in inches: where the rows' middles are, and the size of all."""

    texts: list[str]
    middles: list[float]
    height: float
    width: float


def names_of(rows: Sequence[RecordRow], most: float = math.inf) -> RowLabels:
    """The labels of the rows below each other, each with the room that its lines need.

    If that were more than `most` inches, each label has one line, and all the same room.
    """
    texts = [wrapped(marked_label_of(row), NAME) for row in rows]
    heights = [0.07 + LINE * (text.count("\n") + 1) for text in texts]
    if sum(heights) > most:
        texts, heights = [*map(marked_label_of, rows)], [most / len(rows)] * len(rows)
    ends = list(itertools.accumulate(heights))
    longest = max(len(line) for text in texts for line in text.split("\n"))
    middles = [end - height / 2 for end, height in zip(ends, heights, strict=True)]
    return RowLabels(texts, middles, ends[-1], CHARACTER * longest)


def parts(
    title: str,
    sheet: FigureSize,
    drawn: Sequence[tuple[Panel, Sequence[RecordRow]]],
    heights: Sequence[float],
    origins: Collection[str] = ("measured",),
    beside: int = 1,
) -> tuple[Figure, list[SubFigure]]:
    """A figure below its title, with a part for each panel: below its heading, so many inches high, `beside` a row.

    A heading says what the rows share; the device, where one of the `origins` of the numbers is measured. Without
    headings, marks are explained, and several panels named. Where the rows are of several families, the figure's last
    line has their colours.
    """
    several = len(drawn) > 1
    said = [
        panel.heading(rows, origins)
        if sheet.heading
        else ", ".join([panel.title] * several + panel.marks(rows, origins))
        for panel, rows in drawn
    ]
    beside = min(beside, len(drawn))
    texts = [wrapped(text, int(sheet.width / beside / CHARACTER)) for text in said]
    above = wrapped(title, int(sheet.width / _TITLE_CHARACTER)) if sheet.heading else ""
    high = [height + LINE * _lines(text) for height, text in zip(heights, texts, strict=True)]
    inches = [max(high[first : first + beside]) for first in range(0, len(high), beside)]
    there = {row["family"] for _, rows in drawn for row in rows}
    found_families = [family for family in FAMILIES if family in there]
    shown = found_families if len(found_families) > 1 else []
    columns = max(1, min(int(sheet.width / _FAMILY), len(shown)))
    legend = LINE * -(-len(shown) // columns) + 0.1 if shown else 0.0
    figure = new_figure(sheet.width, sum(inches) + legend + _TITLE * _lines(above))
    if above:
        figure.suptitle(above, x=0.01, horizontalalignment="left", fontsize=TITLE, fontweight="bold")
    if shown:
        handles = [Patch(color=FAMILIES[family].colour, label=family) for family in shown]
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, borderpad=0, handlelength=1.2)
    places = figure.subfigures(len(inches), beside, squeeze=False, height_ratios=inches)
    found = list(places.flat)[: len(drawn)]
    for part, text in zip(found, texts, strict=True):
        if text:
            part.suptitle(text, x=0.01, horizontalalignment="left", fontsize=SMALL)
    return figure, found


def without_family(rows: Sequence[RecordRow]) -> list[RecordRow]:
    """The rows for `parts` of a figure whose colours are not those of families."""
    return [{**row, "family": ""} for row in rows]


def _lines(text: str) -> int:
    return text.count("\n") + 1 if text else 0


def legend_below(axes: Axes) -> None:
    """A legend below the axes and their labels, a line an entry."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.45, 0), borderaxespad=4.5, alignment="left", borderpad=0,
        labelspacing=0.3,
    )  # fmt: skip


def multiples(
    title: str,
    shown: Sequence[OnPanel],
    sheet: FigureSize,
    least: float,
    height: float,
    share: bool = False,
    most: int = _COLUMNS,
    origins: Collection[str] = ("measured",),
) -> tuple[Figure, list[tuple[SubFigure, list[tuple[Axes, OnPanel]]]]]:
    """A figure of small axes, `most` side by side, `height` inches high and at least `least` wide: each panel's
    part, and its axes with what they show.
    """
    panels = list(dict.fromkeys(each.panel for each in shown))
    own = [[each for each in shown if each.panel is panel] for panel in panels]
    columns = sheet.columns(least, min(most, max(map(len, own))))
    lines = [-(-len(mine) // columns) for mine in own]
    heights = [height * count + 0.2 for count in lines]
    figure, found = parts(title, sheet, [(panel, panel.main) for panel in panels], heights, origins)
    placed = []
    for part, mine, count in zip(found, own, lines, strict=True):
        grid = list(part.subplots(count, columns, squeeze=False, sharex=share, sharey=share).flat)
        for axes in grid[len(mine) :]:
            axes.set_axis_off()
        for axes in grid[max(0, len(mine) - columns) : len(mine)]:
            axes.tick_params(labelbottom=True)  # also above a place that stays empty
        placed.append((part, list(zip(grid, mine, strict=False))))
    return figure, placed
