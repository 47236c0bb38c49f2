"""Curves: quantities against a hyper-parameter or a size, a line for each module and setting, with what was fitted."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from ctxbench.metrics.base import Quantity
from ctxbench.suite.file import POINTS, Figure

from ..curves import AXIS_TITLES, Fit, Series, fit_of, fit_title, is_numeric, lines_of, quantities_of
from .layout import ENTRY, legend_below, parts, wrapped
from .panels import Panel, origin_of
from .style import PAPER, WIDE, Drawing, log_axis, looks

_COLUMNS = 3
# Ticks that are apart by at least this share of the axis do not collide.
_APART = 0.18
MOST_SERIES = 40
# Markers of a line, all of which count for the fit, and sizes named as failed.
MOST_POINTS = 200
MOST_FAILURES = 3
_DASHES = ("-", "--", ":", "-.")
# The part of a marker that is filled, for the lines of a module in turn; none: hollow.
_FILLS = ("full", "none", "left", "top")
# Words on the x-axis: characters of a line, and how far apart the markers of two lines at one word are, at most.
_WORD, _BESIDE = 10, 0.06
# Of a panel, by quantity.
Lines = dict[str, list[Series]]


def has_curve(panels: Sequence[Panel], figure: Figure) -> bool:
    """Whether any panel has a line of it."""
    return bool(quantities_of(panels, figure))


def curve(panels: Sequence[Panel], figure: Figure) -> Drawing:
    """The drawing: a part a panel, and in it axes for each quantity."""
    ys = quantities_of(panels, figure)
    found = {panel: {each.key: lines_of(panel, figure, each) for each in ys} for panel in panels}
    found = {panel: lines for panel, lines in found.items() if any(lines.values())}
    shown = {panel: {key: lines[:MOST_SERIES] for key, lines in own.items()} for panel, own in found.items()}
    columns = min(_COLUMNS, len(ys))
    rows = -(-len(ys) // columns)
    heights = [(2.6 + 0.17 * max(_height(lines, figure) for lines in own.values())) * rows for own in shown.values()]
    drawn = [
        (panel, pd.concat([line.frame for lines in own.values() for line in lines])) for panel, own in shown.items()
    ]
    picture, places = parts(3.15 * columns, drawn, heights)
    drawing = Drawing(picture, _caption(figure, shown.values(), found.values()))
    first: dict[str, Axes] = {}
    for (panel, own), part in zip(shown.items(), places, strict=True):
        cells = list(part.subplots(rows, columns, squeeze=False, gridspec_kw={"hspace": 0.04}).flat)
        for each, axes in zip(ys, cells, strict=False):
            _axes(drawing, axes, own[each.key], figure, each)
            axes.set_title(_title(panel, own[each.key], figure, each))
            if each.key in first:
                axes.sharey(first[each.key])
            first.setdefault(each.key, axes)
        for axes in cells[len(ys) :]:
            axes.set_axis_off()
    numeric = is_numeric(line.frame["x"] for own in shown.values() for lines in own.values() for line in lines)
    for axes in picture.axes:
        if axes.axison and figure.scale in ("log", "log-x") and numeric:
            log_axis(axes, "x")
            _mark_sizes(axes)
        if axes.axison and figure.scale in ("log", "log-y"):
            log_axis(axes, "y")
    return drawing


def _caption(figure: Figure, shown: Iterable[Lines], found: Iterable[Lines]) -> str:
    fitted = f"; the legend has the {fit_title(figure)}" if figure.fit else ""
    counts = [sum(max(map(len, own.values())) for own in each) for each in (shown, found)]
    omitted = f" Shown: {counts[0]} of {counts[1]} lines." if counts[0] < counts[1] else ""
    return f"{figure.title}: against {_x_title(figure)}{fitted}.{omitted}"


def _x_title(figure: Figure) -> str:
    return AXIS_TITLES.get(figure.x, figure.x)


def _title(panel: Panel, lines: Sequence[Series], figure: Figure, each: Quantity) -> str:
    """The quantity with its origin; and the input, where the run has several and x is another thing."""
    origin = f" ({origin_of(each, panel.frame)})" if each.origin in ("predicted", "published") else ""
    shapes = {shape for line in lines for shape in line.frame["shape"]}
    several = figure.x not in POINTS and panel.frame["shape"].nunique() > 1 and len(shapes) == 1
    return each.title + origin + (f"\ninput [{shapes.pop().replace('x', ', ')}]" if several else "")


def _height(lines: Sequence[Series], figure: Figure) -> int:
    """How many lines the legend has."""
    return sum(_label(line, lines, figure).count("\n") + 1 for line in lines)


def _axes(drawing: Drawing, axes: Axes, lines: Sequence[Series], figure: Figure, each: Quantity) -> None:
    appearance = looks(line.module for line in lines)
    words = list(dict.fromkeys(str(x) for line in lines for x in line.frame["x"]))
    numeric = is_numeric(line.frame["x"] for line in lines)
    before: dict[str, int] = {}
    aside = min(_BESIDE, 0.7 / len(lines)) * (np.arange(len(lines)) - (len(lines) - 1) / 2)
    for line, shift in zip(lines, aside, strict=True):
        place = before[line.module] = before.get(line.module, -1) + 1
        look, label = appearance[line.module], _label(line, lines, figure)
        known = line.y.notna() & ((line.y > 0) | (figure.scale in ("linear", "log-x")))
        y = line.y[known].to_numpy()
        x = np.array([float(v) if numeric else words.index(str(v)) + shift for v in line.frame["x"][known]])
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
        (points,) = axes.plot(x[some], y[some], linestyle="", marker=look.marker, color=look.colour, label=label)
        points.set(fillstyle=_FILLS[place % len(_FILLS)], markerfacecoloralt=PAPER)
        if points.get_fillstyle() == "none":
            points.set(fillstyle="full", markerfacecolor=PAPER)  # the line below is not seen
        points.set_gid(drawing.detail(" ".join(label.split())))
        fit = fit_of(line, figure) if figure.fit and numeric else None
        if isinstance(fit, Fit):
            x = np.array([x.min(), x.max()])
            y = fit.at(x)
        if numeric:
            axes.plot(x, y, color=look.colour, linewidth=1, linestyle=_DASHES[place % len(_DASHES)])
    ticks = [wrapped(word, _WORD) for word in words]
    if not numeric:
        axes.set_xticks(range(len(words)), ticks)
        axes.margins(x=0.15)
    elif all(isinstance(x, int) for line in lines for x in line.frame["x"]):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=_x_title(figure), ylabel=each.unit.symbol)
    axes.grid(which="major")
    legend_below(axes, lines=1 if numeric else 1 + max(tick.count("\n") for tick in ticks))


def _mark_sizes(axes: Axes) -> None:
    """Ticks at the measured sizes, if they are few, far apart and short."""
    sizes = np.unique(np.concatenate([line.get_xdata() for line in axes.lines]))
    places = np.log(sizes)
    if (np.diff(places) >= _APART * np.ptp(places)).all() and sizes[-1] < WIDE:
        axes.xaxis.set_major_locator(FixedLocator(sizes.tolist()))


def _label(line: Series, others: Sequence[Series], figure: Figure) -> str:
    """The module and those settings that another line does not have; what was fitted; how and where rows failed."""
    theirs = [other.settings.split(", ") for other in others]
    own = [setting for setting in line.settings.split(", ") if any(setting not in each for each in theirs)]
    fit = fit_of(line, figure) if figure.fit and is_numeric([line.frame["x"]]) else ""
    found = fit.text if isinstance(fit, Fit) else fit
    name = f"{line.title} {', '.join(own)}".strip()
    return wrapped((f"{name}: {found}" if found else name) + _failures(line.frame), ENTRY)


def _failures(rows: pd.DataFrame) -> str:
    """`, oom at 4096, 16384`: how rows of a line failed, and at which x."""
    failed = rows[rows["status"] != "ok"]
    if failed.empty:
        return ""
    sizes = ", ".join(str(x) for x in failed["x"].head(MOST_FAILURES))
    more = f" and {len(failed) - MOST_FAILURES} more" if len(failed) > MOST_FAILURES else ""
    return f", {'/'.join(failed['status'].unique())} at {sizes}{more}"
