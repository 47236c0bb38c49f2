"""Curves: quantities against a hyper-parameter or a size, a line for each module and setting, with what was fitted.

Where many modules differ in a word only, such as the dtype, they are sorted points: the ratio to the first word.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FixedLocator, MaxNLocator

from ctxbench.machine_load import disturbed
from ctxbench.metrics import read_number
from ctxbench.metrics.base import Quantity, Unit
from ctxbench.number import Number, ratio, rough_ratio
from ctxbench.suite.file import POINTS, Figure

from ..curves import AXIS_TITLES, Fit, Series, drawn_of, fit_of, is_numeric
from ..panels import DISTURBED, Panel, origin_of
from ..tables.cells import heading
from .layout import ENTRY, parts, wrapped
from .style import DASHES, FAINT, PAPER, WIDE, Drawing, Look, log_axis, looks

_COLUMNS = 3
# Ticks that are apart by at least this share of the axis do not collide.
_APART = 0.18
MOST_SERIES = 40
# With more lines than this over words, each module is a line of the figure.
_MANY = 12
# Inches of a module's line, and of a line of the legend.
_LINE, _ENTRY = 0.17, 0.17
# Markers of a line, all of which count for the fit, and sizes named as failed.
MOST_POINTS = 200
MOST_FAILURES = 3
# The part of a marker that is filled, for the lines of a module in turn; none: hollow.
_FILLS = ("full", "none", "left", "top")
# Lines whose points differ by less, relatively, coincide: the later ones have larger markers, behind the others.
_SAME, _RING = 0.01, 0.7
# Words on the x-axis: characters of a line, and how far apart the markers of two lines at one word are, at most.
_WORD, _BESIDE = 10, 0.06
# How much of linear axes is above the largest value.
_ABOVE = 1.05
_WORD_MARKERS = ("o", "D", "s", "^", "v", "P")
# Of a panel, by quantity.
Lines = dict[str, list[Series]]


def has_curve(panels: Sequence[Panel], figure: Figure) -> bool:
    """Whether any panel has a line of it."""
    return bool(drawn_of(panels, figure))


def curve(panels: Sequence[Panel], figure: Figure) -> Drawing:
    """The drawing: a part a panel, and in it axes for each quantity; one legend a part."""
    found = drawn_of(panels, figure)
    ys = [each for each, _ in found]
    shown = {
        panel: {each.key: lines[number][:MOST_SERIES] for each, lines in found}
        for number, panel in enumerate(panels)
        if any(lines[number] for _, lines in found)
    }
    is_list = {panel: _is_list(own) for panel, own in shown.items()}
    columns = min(_COLUMNS, len(ys)) if len(ys) != 4 else 2
    rows = -(-len(ys) // columns)
    entries = {
        panel: 0 if is_list[panel] else sum(label.count("\n") + 1 for label in _labels(own))
        for panel, own in shown.items()
    }
    beside = max(1, int(3.15 * columns / (ENTRY * 0.075)))
    heights = [
        (_LINE * max(map(len, own.values())) + 1.0 if is_list[panel] else 2.6) * rows
        + _ENTRY * -(-entries[panel] // beside)
        for panel, own in shown.items()
    ]
    drawn = [(panel, panel.frame.loc[_rows_of(own)]) for panel, own in shown.items()]
    origins = {origin_of(each, panel.frame).partition(",")[0] for panel in shown for each in ys}
    picture, places = parts(figure.title, 3.15 * columns, drawn, heights, origins)
    counts = [
        sum(max(len(lines[n]) for _, lines in found) for n in range(len(panels))),
        sum(max(map(len, own.values())) for own in shown.values()),
    ]
    drawing = Drawing(picture, _caption(figure, counts[0], counts[1], any(is_list.values())))
    first: dict[str, Axes] = {}
    for (panel, own), part in zip(shown.items(), places, strict=True):
        cells = list(part.subplots(rows, columns, squeeze=False, gridspec_kw={"hspace": 0.04}).flat)
        appearance = looks(line.module for line in _all(own))
        for each, axes in zip(ys, cells, strict=False):
            if is_list[panel]:
                _ratio_axes(drawing, axes, own[each.key], panel, each, appearance)
            else:
                _axes(drawing, axes, own[each.key], figure, each, appearance)
            axes.set_title(_title(panel, own[each.key], figure, each, None if is_list[panel] else each.unit))
            if not is_list[panel] and each.key in first:
                axes.sharey(first[each.key])
            first.setdefault(each.key, axes)
        for axes in cells[len(ys) :]:
            axes.set_axis_off()
        _legend(part, cells[: len(ys)], beside)
    return drawing


def _all(own: Lines) -> list[Series]:
    return list(chain.from_iterable(own.values()))


def _rows_of(own: Lines) -> list[int]:
    """The index of the rows that are drawn."""
    return sorted({int(i) for line in _all(own) for i in line.frame.index})


def _is_list(own: Lines) -> bool:
    """Whether the lines are many, and differ in words."""
    return max(map(len, own.values())) > _MANY and not is_numeric(line.frame["x"] for line in _all(own))


def _caption(figure: Figure, found: int, shown: int, has_ratios: bool) -> str:
    fitted = "; the table has the fits" if figure.fit else ""
    if has_ratios:
        fitted += "; of times with the 95 % interval of the ratio over rounds, where three are common to both"
    omitted = f" Shown: {shown} of {found} lines." if shown < found else ""
    return f"{figure.title}: against {_x_title(figure)}{fitted}.{omitted}"


def _x_title(figure: Figure) -> str:
    return AXIS_TITLES.get(figure.x, figure.x)


def _title(panel: Panel, lines: Sequence[Series], figure: Figure, each: Quantity, unit: Unit | None) -> str:
    """The quantity and its origin, with a unit if it is given; and the input, where the run has several."""
    title = heading(each.title, unit) if unit else each.title
    origin = f"\n({origin_of(each, panel.frame)})" if each.origin in ("predicted", "published") else ""
    shapes = {shape for line in lines for shape in line.frame["shape"]}
    several = figure.x not in POINTS and panel.frame["shape"].nunique() > 1 and len(shapes) == 1
    return title + origin + (f"\ninput [{shapes.pop().replace('x', ', ')}]" if several else "")


def _labels(own: Lines) -> list[str]:
    """What the lines are called, each name once."""
    every = _all(own)
    return list(dict.fromkeys(_label(line, every) for line in every))


def _label(line: Series, others: Sequence[Series]) -> str:
    """The module and those settings that another line does not have; how and where rows failed."""
    theirs = [other.settings.split(", ") for other in others]
    own = [setting for setting in line.settings.split(", ") if any(setting not in each for each in theirs)]
    return wrapped(f"{line.title} {', '.join(own)}".strip() + _failures(line.frame), ENTRY)


def _axes(
    drawing: Drawing, axes: Axes, lines: Sequence[Series], figure: Figure, each: Quantity, appearance: dict[str, Look]
) -> None:
    if not lines:
        axes.set_axis_off()
        return
    words = list(dict.fromkeys(str(x) for line in lines for x in line.frame["x"]))
    numeric = is_numeric(line.frame["x"] for line in lines)
    before: dict[str, int] = {}
    others: list[Any] = []
    aside = min(_BESIDE, 0.7 / len(lines)) * (np.arange(len(lines)) - (len(lines) - 1) / 2)
    for line, shift in zip(lines, aside, strict=True):
        place = before[line.module] = before.get(line.module, -1) + 1
        look, label = appearance[line.module], _label(line, lines)
        known = line.y.notna() & ((line.y > 0) | (figure.scale in ("linear", "log-x")))
        y = line.y[known].to_numpy()
        x = np.array([float(v) if numeric else words.index(str(v)) + shift for v in line.frame["x"][known]])
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
        style: dict[str, Any] = {
            "color": look.colour,
            "linewidth": 1.0,
            "linestyle": DASHES[place % len(DASHES)] if numeric else "",
        }
        fit = fit_of(line, figure) if figure.fit and numeric else None
        (points,) = axes.plot(x[some], y[some], marker=look.marker, label=label, **style)
        points.set(fillstyle=_FILLS[place % len(_FILLS)], markerfacecoloralt=PAPER)
        hidden = sum(len(o) == len(y) and np.allclose(o, y, rtol=_SAME) for o in others)
        points.set_markersize(points.get_markersize() * (1 + _RING * hidden))
        points.set_zorder(2 - 0.01 * hidden)
        others.append(y)
        if points.get_fillstyle() == "none":
            points.set(fillstyle="full", markerfacecolor=PAPER)  # the line below is not seen
        text = f"{label}: {fit.text}" if isinstance(fit, Fit) else label
        points.set_gid(drawing.detail(" ".join(text.split())))
        if isinstance(fit, Fit) and not fit.line.low <= 0 <= fit.line.high:
            points.set(linestyle="")
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, fit.at(ends), **style)
        _intervals(axes, line, known, x)
    _scales(axes, lines, figure, words, numeric)


def _intervals(axes: Axes, line: Series, known: "pd.Series[bool]", x: "np.typing.NDArray[np.float64]") -> None:
    """The intervals of times, and a mark at those that other work disturbed."""
    each = line.quantity
    if each.has_interval:
        low, high = (
            line.frame[each.detail(end)][known].astype("float64") / each.unit.factor for end in ("low_ms", "high_ms")
        )
        axes.vlines(x, low, high, color=FAINT, linewidth=0.8, zorder=1)
        for place, y, share in zip(x, line.y[known], line.frame["others_share"][known], strict=True):
            if pd.notna(share) and disturbed(share):
                axes.annotate(DISTURBED, (place, y), xytext=(3, 3), textcoords="offset points", fontsize=8)


def _scales(axes: Axes, lines: Sequence[Series], figure: Figure, words: Sequence[str], numeric: bool) -> None:
    if not numeric:
        axes.set_xticks(range(len(words)), [wrapped(word, _WORD) for word in words])
        axes.margins(x=0.15)
    elif all(isinstance(x, int) for line in lines for x in line.frame["x"]):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=_x_title(figure))
    axes.grid(which="major")
    if figure.scale in ("log", "log-x") and numeric:
        log_axis(axes, "x")
        _mark_sizes(axes)
    if figure.scale in ("log", "log-y"):
        log_axis(axes, "y")
    elif min(line.y.min() for line in lines) >= 0:
        axes.set_ylim(0, _ABOVE * axes.get_ylim()[1])  # a difference looks as large as it is


def _ratio_axes(
    drawing: Drawing, axes: Axes, lines: Sequence[Series], panel: Panel, each: Quantity, appearance: dict[str, Look]
) -> None:
    """A line for each module, sorted: its number at each other word, over that at the first.

    A ratio of times has its 95 % interval over rounds.
    """
    words = list(dict.fromkeys(str(x) for line in lines for x in line.frame["x"]))
    values: dict[Series, dict[str, Number]] = {}
    for line in lines:
        found = zip(map(str, line.frame["x"]), line.frame.index, strict=True)
        own = {word: read_number(panel.records[place], each) for word, place in found}
        known = {word: value for word, value in own.items() if value and value.value > 0}
        if words[0] in known:
            values[line] = known

    def ratio_of(line: Series, word: str) -> float:
        return values[line][word].value / values[line][words[0]].value

    order = sorted(values, key=lambda line: next((ratio_of(line, w) for w in words[1:] if w in values[line]), 0.0))
    for place, line in enumerate(order):
        for number, word in enumerate(words[1:]):
            if word not in values[line]:
                continue
            value = ratio_of(line, word)
            over_rounds = ratio(values[line][word], values[line][words[0]])
            text = f"{rough_ratio(value).text()} times {words[0]}"
            if over_rounds.has_interval:
                axes.plot(over_rounds.ends, [place, place], color=FAINT, linewidth=0.8, zorder=1)
                text += f", over rounds {over_rounds.text()}"
            (point,) = axes.plot(
                value, place, _WORD_MARKERS[number % len(_WORD_MARKERS)], color=appearance[line.module].colour,
                markersize=4.5, fillstyle="full" if number % 2 == 0 else "none", label=word,
            )  # fmt: skip
            point.set_gid(drawing.detail(f"{line.title}, {word}: {text}"))
    axes.axvline(1, color=FAINT, linewidth=0.9, zorder=0)
    if any(len(known) > 1 for known in values.values()):
        log_axis(axes, "x")
        axes.tick_params(axis="x", labelsize=7)
    axes.set(xlabel=f"times {words[0]}", ylim=(-0.7, len(order) - 0.3))
    axes.set_yticks(range(len(order)), [line.title for line in order], fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _legend(part: SubFigure, cells: Iterable[Axes], columns: int) -> None:
    """One legend below all axes, an entry for each label."""
    found: dict[str, Artist] = {}
    for axes in cells:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        part.legend(
            list(found.values()),
            list(found),
            loc="outside lower left",
            ncols=min(columns, len(found)),
            labelspacing=0.3,
            borderpad=0,
        )


def _mark_sizes(axes: Axes) -> None:
    """Ticks at the measured sizes, if they are few, far apart and short."""
    sizes = np.unique(np.concatenate([line.get_xdata() for line in axes.lines]))
    places = np.log(sizes)
    if (np.diff(places) >= _APART * np.ptp(places)).all() and sizes[-1] < WIDE:
        axes.xaxis.set_major_locator(FixedLocator(sizes.tolist()))


def _failures(rows: pd.DataFrame) -> str:
    """`, oom at 4096, 16384`: how rows of a line failed, and at which x."""
    failed = rows[rows["status"] != "ok"]
    if failed.empty:
        return ""
    sizes = ", ".join(str(x) for x in failed["x"].head(MOST_FAILURES))
    more = f" and {len(failed) - MOST_FAILURES} more" if len(failed) > MOST_FAILURES else ""
    return f", {'/'.join(failed['status'].unique())} at {sizes}{more}"
