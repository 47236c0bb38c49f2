"""Scaling: each cost against positions, batch or channels on log axes, with the fitted exponent and its interval."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator
from numpy.typing import NDArray

from ctxbench.metrics import quantities
from ctxbench.metrics.base import Quantity
from ctxbench.statistics import fit_power_law

from .panels import Panel, origin_of
from .style import Drawing, log_axis, looks, new_figure

_AXES = {"positions": "positions n = H x W", "batch": "batch", "channels": "channels"}
_FEWEST = 3
_COLUMNS = 3
# Ticks whose values have at least this ratio do not collide.
_APART = 1.6
MOST_SERIES = 24
# Markers of a series, all of which count for the fit, and sizes named as failed.
MOST_POINTS = 200
MOST_FAILURES = 3


def _with_positions(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(positions=frame["height"] * frame["width"])


def series_of(panel: Panel, axis: str) -> list[tuple[str, pd.DataFrame]]:
    """Rows that differ in `axis` alone, three sizes or more: (module with settings, rows by rising size).

    Of several such series of a module the longest stands, then the first; at most MOST_SERIES are taken.
    """
    frame = _with_positions(panel.frame)
    fixed = ["module", "settings", "dtype", "memory_format", "execution", "threads"]
    fixed += [name for name in _AXES if name != axis]
    frame = frame.assign(sizes=frame.groupby(fixed, dropna=False)[axis].transform("nunique"))
    frame = frame[frame["sizes"] >= _FEWEST].sort_values("sizes", ascending=False, kind="stable")
    found: dict[str, pd.DataFrame] = {}
    for _, rows in frame.groupby(fixed, dropna=False, sort=False):
        name = f"{rows['module'].iloc[0]} {rows['settings'].iloc[0]}".strip()
        found.setdefault(name, rows.drop_duplicates(axis).sort_values(axis))
        if len(found) == MOST_SERIES:
            break
    return sorted(found.items(), key=lambda item: int(item[1].index.min()))


def costs_along(panels: Sequence[Panel], axis: str) -> list[Quantity]:
    """The quantities that differ along the axis in any series; if none does, all that have numbers."""
    series = [rows for panel in panels for _, rows in series_of(panel, axis)]
    known = [q for q in quantities().values() if q.better and any(rows[q.column].notna().any() for rows in series)]
    return [each for each in known if any(rows[each.column].nunique() > 1 for rows in series)] or known


def has_scaling(axis: str) -> Callable[[Sequence[Panel]], bool]:
    """Whether any panel has a series along this axis."""
    return lambda panels: any(series_of(panel, axis) for panel in panels)


def scaling(axis: str) -> Callable[[Sequence[Panel]], Drawing]:
    """The drawing along one axis: `positions`, `batch` or `channels`."""

    def draw(panels: Sequence[Panel]) -> Drawing:
        shown = [panel for panel in panels if series_of(panel, axis)]
        costs = costs_along(shown, axis)
        entries = max(len(series_of(panel, axis)) for panel in shown)
        columns = min(_COLUMNS, len(costs))
        lines = -(-len(costs) // columns)
        figure = new_figure(3.15 * columns, (2.6 + 0.17 * entries) * lines * len(shown))
        where = f", {shown[0].title}" if len(shown) == 1 else ""
        drawing = Drawing(
            figure, f"Cost against {_AXES[axis]}{where}; the legend has the exponent of a power law [95 % interval]."
        )
        grid = figure.subplots(lines * len(shown), columns, squeeze=False, gridspec_kw={"hspace": 0.04})
        first: dict[str, Axes] = {}
        for number, panel in enumerate(shown):
            cells = list(grid[number * lines : (number + 1) * lines].flat)
            for cost, axes in zip(costs, cells, strict=False):
                _scaling_axes(drawing, axes, panel, axis, cost)
                origin = f" ({origin_of(cost, panel.frame)})" if cost.origin == "predicted" else ""
                axes.set_title(cost.title + origin + (f"\n{panel.title}" if len(shown) > 1 else ""))
                if cost.key in first:
                    axes.sharey(first[cost.key])
                first.setdefault(cost.key, axes)
            for axes in cells[len(costs) :]:
                axes.set_axis_off()
        for axes in grid.flat:
            if axes.axison:
                log_axis(axes, "x")
                log_axis(axes, "y")
                _mark_sizes(axes)
        return drawing

    return draw


def _scaling_axes(drawing: Drawing, axes: Axes, panel: Panel, axis: str, cost: Quantity) -> None:
    series = series_of(panel, axis)
    appearance = looks(rows["module"].iloc[0] for _, rows in series)
    for name, rows in series:
        look = appearance[rows["module"].iloc[0]]
        known = rows[rows[cost.column].notna()]
        x = known[axis].to_numpy(dtype=np.float64)
        y = known[cost.column].to_numpy(dtype=np.float64) / cost.unit.factor
        label = f"{name}: {_exponent(x, y)}{_failures(rows, axis)}"
        drawn = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
        (line,) = axes.plot(x[drawn], y[drawn], linestyle="", marker=look.marker, color=look.colour, label=label)
        line.set_gid(drawing.detail(label))
        if len(x) >= _FEWEST:
            law = fit_power_law(x, y)
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, law.scale * ends**law.exponent, color=look.colour, linewidth=1)
    axes.set(xlabel=_AXES[axis], ylabel=cost.unit.symbol, xscale="log", yscale="log")
    axes.grid(which="major")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), alignment="left", borderpad=0, labelspacing=0.3)


def _mark_sizes(axes: Axes) -> None:
    """Ticks at the measured sizes, if they are few and far apart."""
    sizes = np.unique(np.concatenate([line.get_xdata() for line in axes.lines]))
    if (sizes[1:] >= _APART * sizes[:-1]).all():
        axes.xaxis.set_major_locator(FixedLocator(sizes.tolist()))


def _failures(rows: pd.DataFrame, axis: str) -> str:
    """`, oom at 4096, 16384`: how rows of a series failed, and at which sizes."""
    failed = rows[rows["status"] != "ok"]
    if failed.empty:
        return ""
    sizes = ", ".join(str(size) for size in failed[axis].head(MOST_FAILURES))
    more = f" and {len(failed) - MOST_FAILURES} more" if len(failed) > MOST_FAILURES else ""
    return f", {'/'.join(failed['status'].unique())} at {sizes}{more}"


def _exponent(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """`1.98 [1.95, 2.01]`; a word where there are too few points."""
    if len(x) < _FEWEST:
        return "too few points"
    law = fit_power_law(x, y)
    return f"{law.exponent:.2f} [{law.low:.2f}, {law.high:.2f}]"
