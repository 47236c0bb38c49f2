"""Predicted times against those that a paper published or a run measured on the same device."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ctxbench.mode import MODES, Mode

from ..tables.numbers import significant
from ..tables.predicted import with_predictions
from .labels import freeze_layout, place_labels
from .layout import NAME, parts, wrapped
from .panels import Panel, label_of
from .style import FAINT, INK, Drawing, log_axis, looks

_MEASURED_SIZE = 9
# Characters of a line above axes.
_TITLE = 44


def _points(panel: Panel, mode: Mode) -> pd.DataFrame:
    """Rows with a prediction and a time to compare: `known`, and `origin` published or measured; `y`, `low`, `high`."""
    frame = with_predictions(panel.run)
    frame = frame[frame["case"].isin(panel.main["case"])]
    name = f"latency_{mode}_predicted"
    frame = frame.assign(y=frame[f"{name}_ms"], low=frame[f"{name}_low_ms"], high=frame[f"{name}_high_ms"])
    published = pd.to_numeric(frame[f"latency_{mode}_published"], errors="coerce").astype("float64")
    here = frame["title"] == panel.run.device_name(panel.device)
    measured = frame[f"latency_{mode}_ms"].where(here).astype("float64")
    both = [
        frame.assign(known=known, origin=name) for known, name in ((published, "published"), (measured, "measured"))
    ]
    found = pd.concat(both, ignore_index=True)
    return found[found["known"].notna() & found["y"].notna()]


def has_predicted(panels: Sequence[Panel]) -> bool:
    return any(len(_points(panel, mode)) for panel in panels for mode in MODES)


def predicted_against_known(panels: Sequence[Panel]) -> Drawing:
    """Predicted over known time with its band, by mode; on the line both are equal."""
    panels = [panel for panel in panels if has_predicted([panel])]
    modes = list(reversed(MODES))
    rows = [(panel, pd.concat([_points(panel, mode) for mode in modes])) for panel in panels]
    figure, found = parts(3.9 * len(modes), rows, [3.6] * len(panels))
    drawing = Drawing(
        figure,
        "Predicted times (never measured) against published ones, and against measured ones (rings), on the same "
        "device; the bars are the 80 % band of the prediction, on the line both are equal.",
    )
    drawn = [
        (axes, _axes(drawing, axes, panel, mode))
        for panel, part in zip(panels, found, strict=True)
        for mode, axes in zip(modes, part.subplots(1, len(modes), squeeze=False).flat, strict=True)
    ]
    freeze_layout(figure)
    for axes, points in drawn:
        names = [wrapped(label_of(row), NAME) for row in points.to_dict("records")]
        place_labels(axes, points["known"], points["y"], names, [3.0] * len(points))
    return drawing


def _axes(drawing: Drawing, axes: Axes, panel: Panel, mode: Mode) -> pd.DataFrame:
    points = _points(panel, mode)
    appearance = looks(points["module"])
    for row in points.to_dict("records"):
        look = appearance[row["module"]]
        axes.plot([row["known"]] * 2, [row["low"], row["high"]], color=look.colour, alpha=0.5, linewidth=1, zorder=1)
        (point,) = axes.plot(row["known"], row["y"], look.marker, color=look.colour, linestyle="", zorder=2)
        if row["origin"] == "measured":
            axes.plot(row["known"], row["y"], "o", mfc="none", mec=INK, markersize=_MEASURED_SIZE, zorder=3)
        text = (
            f"{label_of(row)}: {row['origin']} {significant(row['known'])} ms, predicted {significant(row['y'])} ms "
            f"[{significant(row['low'])}, {significant(row['high'])}], ratio {row['y'] / row['known']:.2f}"
        )
        point.set_gid(drawing.detail(text))
    axes.set(xscale="log", yscale="log", xlabel="published or measured, ms", ylabel="predicted, ms")
    axes.set_title(wrapped(f"{mode}; {', '.join(points['title'].unique())}", _TITLE), fontstyle="italic")
    axes.grid(which="major")
    if len(points):
        ends = np.array([points["known"].min(), points["known"].max(), points["low"].min(), points["high"].max()])
        line = [ends.min() / 1.3, ends.max() * 1.3]
        axes.set(xlim=line, ylim=line)
        axes.add_line(Line2D(line, line, color=FAINT, linewidth=0.9, zorder=1))
        log_axis(axes, "x")
        log_axis(axes, "y")
    return points
