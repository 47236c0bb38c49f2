"""Curves: quantities against a hyper-parameter or a size, a line for each module and setting, with what was fitted."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from ctxbench.metrics.base import Quantity
from ctxbench.suite import POINTS, Figure

from .curves import AXIS_TITLES, Fit, Series, fit_of, fit_title, is_numeric, lines_of, quantities_of
from .panels import Panel, origin_of
from .style import PAPER, Drawing, log_axis, looks, new_figure

_COLUMNS = 3
# Inches: of axes with a short legend, and of a letter in it.
_WIDTH, _LETTER = 3.15, 0.062
# Ticks whose values have at least this ratio do not collide.
_APART = 1.6
# Markers of a line, all of which count for the fit, and sizes named as failed.
MOST_POINTS = 200
MOST_FAILURES = 3
_DASHES = ("-", "--", ":", "-.")


def has_curve(panels: Sequence[Panel], figure: Figure) -> bool:
    """Whether any panel has a line of it."""
    return bool(quantities_of(panels, figure))


def curve(panels: Sequence[Panel], figure: Figure) -> Drawing:
    """The drawing: a row of axes a panel, one for each quantity."""
    ys = quantities_of(panels, figure)
    shown = [panel for panel in panels if any(lines_of(panel, figure, each) for each in ys)]
    drawn_lines = [lines_of(panel, figure, each) for panel in shown for each in ys]
    entries = max(map(len, drawn_lines))
    widest = max(len(_label(line, _short(line, found), figure)) for found in drawn_lines for line in found)
    width = max(_WIDTH, widest * _LETTER + 0.6)
    columns = min(_COLUMNS if width < _WIDTH + 1 else 2, len(ys))
    lines = -(-len(ys) // columns)
    drawn = new_figure(width * columns, (2.6 + 0.17 * entries) * lines * len(shown))
    where = f", {shown[0].title}" if len(shown) == 1 else ""
    fitted = f"; the legend has the {fit_title(figure)}" if figure.fit else ""
    drawing = Drawing(drawn, f"{figure.title}: against {x_title(figure)}{where}{fitted}.")
    grid = drawn.subplots(lines * len(shown), columns, squeeze=False, gridspec_kw={"hspace": 0.04})
    first: dict[str, Axes] = {}
    for number, panel in enumerate(shown):
        cells = list(grid[number * lines : (number + 1) * lines].flat)
        for each, axes in zip(ys, cells, strict=False):
            _axes(drawing, axes, panel, figure, each)
            axes.set_title(_title(panel, figure, each, several=len(shown) > 1))
            if each.key in first:
                axes.sharey(first[each.key])
            first.setdefault(each.key, axes)
        for axes in cells[len(ys) :]:
            axes.set_axis_off()
    numeric = is_numeric(line.frame["x"] for found in drawn_lines for line in found)
    for axes in grid.flat:
        if axes.axison and figure.scale in ("log", "log-x") and numeric:
            log_axis(axes, "x")
            _mark_sizes(axes)
        if axes.axison and figure.scale in ("log", "log-y"):
            log_axis(axes, "y")
    return drawing


def x_title(figure: Figure) -> str:
    """What stands below the axes."""
    return AXIS_TITLES.get(figure.x, figure.x)


def _title(panel: Panel, figure: Figure, each: Quantity, several: bool) -> str:
    """The quantity, with its origin, the input where the run has several and x is another thing, and the device."""
    origin = f" ({origin_of(each, panel.frame)})" if each.origin in ("predicted", "published") else ""
    shapes = {shape for series in lines_of(panel, figure, each) for shape in series.frame["shape"]}
    inputs = figure.x not in POINTS and panel.frame["shape"].nunique() > 1 and len(shapes) == 1
    parts = [each.title + origin, *([f"input [{shapes.pop().replace('x', ', ')}]"] if inputs else [])]
    return "\n".join([*parts, *([panel.title] if several else [])])


def _axes(drawing: Drawing, axes: Axes, panel: Panel, figure: Figure, each: Quantity) -> None:
    series = lines_of(panel, figure, each)
    appearance = looks(line.module for line in series)
    words = list(dict.fromkeys(str(x) for line in series for x in line.frame["x"]))
    numeric = is_numeric(line.frame["x"] for line in series)
    before: dict[str, int] = {}
    for line in series:
        look, place = appearance[line.module], before.get(line.module, 0)
        before[line.module] = place + 1
        known = line.y.notna() & ((line.y > 0) | (figure.scale in ("linear", "log-x")))
        y = line.y[known].to_numpy()
        x = np.array([float(v) if numeric else words.index(str(v)) for v in line.frame["x"][known]])
        fit = fit_of(line, figure) if figure.fit and numeric else ""
        label = _label(line, _short(line, series), figure)
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
        (points,) = axes.plot(x[some], y[some], linestyle="", marker=look.marker, color=look.colour, label=label)
        points.set_markerfacecolor(PAPER if place % 2 else look.colour)
        points.set_gid(drawing.detail(label))
        if isinstance(fit, Fit):
            x = np.array([x.min(), x.max()])
            y = fit.at(x)
        if numeric:
            axes.plot(x, y, color=look.colour, linewidth=1, linestyle=_DASHES[place % len(_DASHES)])
    if not numeric:
        axes.set_xticks(range(len(words)), words, rotation=20 if len(words) > 3 else 0)
        axes.margins(x=0.15)
    axes.set(xlabel=x_title(figure), ylabel=each.unit.symbol)
    axes.grid(which="major")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), alignment="left", borderpad=0, labelspacing=0.3)


def _mark_sizes(axes: Axes) -> None:
    """Ticks at the measured sizes, if they are few and far apart."""
    sizes = np.unique(np.concatenate([line.get_xdata() for line in axes.lines]))
    if (sizes[1:] >= _APART * sizes[:-1]).all():
        axes.xaxis.set_major_locator(FixedLocator(sizes.tolist()))


def _label(line: Series, name: str, figure: Figure) -> str:
    """The line's name, what was fitted and, of rows that failed, how and where."""
    fit = fit_of(line, figure) if figure.fit and is_numeric([line.frame["x"]]) else ""
    found = fit.text if isinstance(fit, Fit) else fit
    return (f"{name}: {found}" if found else name) + _failures(line.frame)


def _short(line: Series, others: Sequence[Series]) -> str:
    """The module, and those of its settings that another line does not have."""
    own = [
        each for each in line.settings.split(", ") if any(each not in other.settings.split(", ") for other in others)
    ]
    return f"{line.module} {', '.join(own)}".strip()


def _failures(rows: pd.DataFrame) -> str:
    """`, oom at 4096, 16384`: how rows of a line failed, and at which x."""
    failed = rows[rows["status"] != "ok"]
    if failed.empty:
        return ""
    sizes = ", ".join(str(x) for x in failed["x"].head(MOST_FAILURES))
    more = f" and {len(failed) - MOST_FAILURES} more" if len(failed) > MOST_FAILURES else ""
    return f", {'/'.join(failed['status'].unique())} at {sizes}{more}"
