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

from .layout import ENTRY, legend_below, parts, wrapped
from .panels import Panel, label_of, origin_of
from .style import Drawing, log_axis, looks

_AXES = {"positions": "positions n = H x W", "batch": "batch", "channels": "channels"}
_FEWEST = 3
_COLUMNS = 3
# Ticks that are apart by at least this share of the axis do not collide.
_APART = 0.18
MOST_SERIES = 40
# Markers of a series, all of which count for the fit, and sizes named as failed.
MOST_POINTS = 200
MOST_FAILURES = 3


def _with_positions(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(positions=frame["height"] * frame["width"])


def series_of(panel: Panel, axis: str) -> list[tuple[str, pd.DataFrame]]:
    """Rows that differ in `axis` alone, three sizes or more: (module with settings, rows by rising size).

    Of several such series of a module the longest stands, then the first.
    """
    frame = _with_positions(panel.frame)
    fixed = ["module", "settings", "dtype", "memory_format", "execution", "threads"]
    fixed += [name for name in _AXES if name != axis]
    frame = frame.assign(sizes=frame.groupby(fixed, dropna=False)[axis].transform("nunique"))
    frame = frame[frame["sizes"] >= _FEWEST].sort_values("sizes", ascending=False, kind="stable")
    found: dict[tuple[str, str], pd.DataFrame] = {}
    for (module, settings, *_), rows in frame.groupby(fixed, dropna=False, sort=False):
        found.setdefault((module, settings), rows.drop_duplicates(axis).sort_values(axis))
    longest = sorted(found.values(), key=lambda rows: int(rows.index.min()))
    return [(label_of(rows.iloc[0].to_dict()), rows) for rows in longest]


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
    return lambda panels: _draw([panel for panel in panels if series_of(panel, axis)], axis)


def _draw(panels: Sequence[Panel], axis: str) -> Drawing:
    costs = costs_along(panels, axis)
    every = [series_of(panel, axis) for panel in panels]
    shown = [series[:MOST_SERIES] for series in every]
    columns = min(_COLUMNS, len(costs))
    lines = -(-len(costs) // columns)
    heights = [(2.6 + 0.17 * max(_lines(series, axis, cost) for cost in costs)) * lines for series in shown]
    drawn = [(panel, pd.concat([rows for _, rows in series])) for panel, series in zip(panels, shown, strict=True)]
    figure, found = parts(3.15 * columns, drawn, heights)
    drawing = Drawing(figure, _caption(axis, sum(map(len, shown)), sum(map(len, every))))
    first: dict[str, Axes] = {}
    for panel, part, series in zip(panels, found, shown, strict=True):
        cells = list(part.subplots(lines, columns, squeeze=False, gridspec_kw={"hspace": 0.04}).flat)
        for cost, axes in zip(costs, cells, strict=False):
            _scaling_axes(drawing, axes, series, axis, cost)
            axes.set_title(cost.title + (f" ({origin_of(cost, panel.frame)})" if cost.origin == "predicted" else ""))
            if cost.key in first:
                axes.sharey(first[cost.key])
            first.setdefault(cost.key, axes)
        for axes in cells[len(costs) :]:
            axes.set_axis_off()
    for axes in figure.axes:
        if axes.axison:
            log_axis(axes, "x")
            log_axis(axes, "y")
            _mark_sizes(axes)
    return drawing


def _caption(axis: str, shown: int, every: int) -> str:
    omitted = f" Shown: {shown} of {every} series." if shown < every else ""
    return f"Cost against {_AXES[axis]}; the legend has the exponent of a power law [95 % interval].{omitted}"


def _lines(series: Sequence[tuple[str, pd.DataFrame]], axis: str, cost: Quantity) -> int:
    """How many lines the legend has."""
    return sum(_entry(name, rows, axis, cost).count("\n") + 1 for name, rows in series)


def _entry(name: str, rows: pd.DataFrame, axis: str, cost: Quantity) -> str:
    """The legend's text for a series: its exponent, and how its other sizes failed."""
    return wrapped(f"{name}: {_exponent(*_points(rows, axis, cost))}{_failures(rows, axis)}", ENTRY)


def _points(rows: pd.DataFrame, axis: str, cost: Quantity) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    known = rows[rows[cost.column].notna()]
    return known[axis].to_numpy(dtype=np.float64), known[cost.column].to_numpy(dtype=np.float64) / cost.unit.factor


def _scaling_axes(
    drawing: Drawing, axes: Axes, series: Sequence[tuple[str, pd.DataFrame]], axis: str, cost: Quantity
) -> None:
    appearance = looks(rows["module"].iloc[0] for _, rows in series)
    for name, rows in series:
        look = appearance[rows["module"].iloc[0]]
        x, y = _points(rows, axis, cost)
        label = _entry(name, rows, axis, cost)
        drawn = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
        (line,) = axes.plot(x[drawn], y[drawn], linestyle="", marker=look.marker, color=look.colour, label=label)
        line.set_gid(drawing.detail(" ".join(label.split())))
        if len(x) >= _FEWEST:
            law = fit_power_law(x, y)
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, law.scale * ends**law.exponent, color=look.colour, linewidth=1)
    axes.set(xlabel=_AXES[axis], ylabel=cost.unit.symbol, xscale="log", yscale="log")
    axes.grid(which="major")
    legend_below(axes)


def _mark_sizes(axes: Axes) -> None:
    """Ticks at the measured sizes, if they are few and far apart."""
    sizes = np.unique(np.concatenate([line.get_xdata() for line in axes.lines]))
    places = np.log(sizes)
    if (np.diff(places) >= _APART * np.ptp(places)).all():
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
