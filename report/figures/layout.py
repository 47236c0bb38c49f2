"""What figures share: a part for each panel below the line that names its input, families, wrapped names."""

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from ctxbench.results.rows import rows_of

from ..panels import Panel, marked_label_of
from .style import FAMILIES, new_figure

# Characters of a line of a name, and of a legend below axes.
NAME, ENTRY = 24, 40
_COLUMNS = 4
# Inches: a line and a character of a name beside an axis, a line and a character of a heading.
_NAME_LINE, _NAME_CHARACTER, _LINE, _CHARACTER = 0.15, 0.078, 0.18, 0.07
# Inches of a line of the title.
_TITLE, _TITLE_CHARACTER = 0.24, 0.085
# Inches that a family's name takes below a figure.
_FAMILY = 1.64
# Behind a space or punctuation and before a bracket, but not inside square brackets.
_BREAKS = re.compile(r"(?:(?<=[ :_/-])|(?=[(\[]))(?![^\[]*\])")


class OfPanel(Protocol):
    """What is drawn of one panel."""

    @property
    def panel(self) -> Panel: ...


Shown = TypeVar("Shown", bound=OfPanel)


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` characters, broken behind a space or punctuation where there is one."""
    lines = [""]
    for piece in _BREAKS.split(text):
        if len(lines[-1]) + len(piece.rstrip()) > width and lines[-1]:
            lines.append("")
        while len(piece.rstrip()) > width:
            lines[-1], piece = piece[:width], piece[width:]
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True)
class Names:
    """The labels of rows beside an axis, in inches: where the rows' middles are, and the size of all."""

    texts: list[str]
    middles: list[float]
    height: float
    width: float


def names_of(frame: pd.DataFrame) -> Names:
    """The labels of the rows below each other, each with the room that its lines need."""
    texts = [wrapped(marked_label_of(row), NAME) for row in rows_of(frame)]
    heights = [0.1 + _NAME_LINE * (text.count("\n") + 1) for text in texts]
    ends = list(itertools.accumulate(heights))
    longest = max(len(line) for text in texts for line in text.split("\n"))
    middles = [end - height / 2 for end, height in zip(ends, heights, strict=True)]
    return Names(texts, middles, ends[-1], _NAME_CHARACTER * max(14, longest))


def parts(
    title: str,
    width: float,
    drawn: Sequence[tuple[Panel, pd.DataFrame]],
    heights: Sequence[float],
    origins: Collection[str] = ("measured",),
) -> tuple[Figure, list[SubFigure]]:
    """A figure below its title, with a part for each panel: below its heading, so many inches high.

    A heading says what the rows share; the device, where one of the `origins` of the numbers is measured. Where the
    rows are of several families, the figure's last line has their colours.
    """
    texts = [wrapped(panel.heading(rows, origins), int(width / _CHARACTER)) for panel, rows in drawn]
    above = wrapped(title, int(width / _TITLE_CHARACTER))
    inches = [height + _LINE * (text.count("\n") + 1) for height, text in zip(heights, texts, strict=True)]
    there = set(pd.concat([rows["family"] for _, rows in drawn]))
    found_families = [family for family in FAMILIES if family in there]
    shown = found_families if len(found_families) > 1 else []
    columns = max(1, int(width / _FAMILY))
    legend = _LINE * -(-len(shown) // columns) + 0.1 if shown else 0.0
    figure = new_figure(width, sum(inches) + legend + _TITLE * (above.count("\n") + 1))
    figure.suptitle(above, x=0.01, horizontalalignment="left", fontsize=11, fontweight="bold")
    if shown:
        handles = [Patch(color=FAMILIES[family].colour, label=family) for family in shown]
        columns = min(columns, len(shown))
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, borderpad=0, handlelength=1.2)
    found = list(figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=inches).flat)
    for part, text in zip(found, texts, strict=True):
        part.suptitle(text, x=0.01, horizontalalignment="left", fontsize=8)
    return figure, found


def legend_below(axes: Axes) -> None:
    """A legend below the axes and their labels, a line an entry."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.45, 0), borderaxespad=4.5, alignment="left", borderpad=0,
        labelspacing=0.3,
    )  # fmt: skip


def multiples(
    title: str,
    shown: Sequence[Shown],
    width: float,
    height: float,
    share: bool = False,
    origins: Collection[str] = ("measured",),
) -> tuple[Figure, list[tuple[SubFigure, list[tuple[Axes, Shown]]]]]:
    """A figure of small axes, four side by side, of this size in inches: each panel's part, and its axes with what
    they show.
    """
    panels = list(dict.fromkeys(each.panel for each in shown))
    own = [[each for each in shown if each.panel is panel] for panel in panels]
    columns = min(_COLUMNS, max(map(len, own)))
    lines = [-(-len(mine) // columns) for mine in own]
    heights = [height * count + 0.2 for count in lines]
    figure, found = parts(title, width * columns + 0.2, [(panel, panel.main) for panel in panels], heights, origins)
    placed = []
    for part, mine, count in zip(found, own, lines, strict=True):
        grid = list(part.subplots(count, columns, squeeze=False, sharex=share, sharey=share).flat)
        for axes in grid[len(mine) :]:
            axes.set_axis_off()
        for axes in grid[max(0, len(mine) - columns) : len(mine)]:
            axes.tick_params(labelbottom=True)  # also above a place that stays empty
        placed.append((part, list(zip(grid, mine, strict=False))))
    return figure, placed
