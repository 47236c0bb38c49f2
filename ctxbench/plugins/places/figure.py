"""The figure of places: predicted time of an inference against the FLOPs that ultralytics prints."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity, read_number
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.labels import freeze_layout, place_labels
from ctxbench.report.figures.layout import NAME, PAGE, FigureSize, parts, wrapped
from ctxbench.report.figures.style import PALE, Drawing, looks
from ctxbench.report.figures.ticks import log_axis
from ctxbench.report.panels import Panel, label_of

# Inches.
_HIGH = 3.6


def _rows(panel: Panel) -> list[RecordRow]:
    return [row for row in panel.rows if row["place"] and row["place_flops"] and row["latency_infer_ms"]]


def times_at_places(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """A bar over the band of each block at each place; a marker where the prediction is known well enough."""
    shown = [(panel, _rows(panel)) for panel in panels if _rows(panel)]
    figure, found = parts("What a block adds at a place", sheet, shown, [_HIGH] * len(shown), ("predicted",))
    drawing = Drawing(
        figure,
        "Predicted time of an inference with its 80 % band against the FLOPs that ultralytics printed until 2026. "
        "Pale, without a marker: the time itself is not known.",
    )
    drawn = []
    for part, (panel, rows) in zip(found, shown, strict=True):
        axes = part.subplots()
        drawn.append((axes, _points(drawing, axes, rows)))
        axes.set(xlabel="GFLOPs by ultralytics (counted)", ylabel=f"ms per inference, {panel.device}")
    freeze_layout(figure)
    for axes, points in drawn:
        x, y, names = zip(*points, strict=True)
        place_labels(axes, x, y, names, [3.0] * len(points))
    return drawing


def _points(drawing: Drawing, axes: Axes, rows: Sequence[RecordRow]) -> list[tuple[float, float, str]]:
    """Draw the rows: their places in the axes, and names."""
    time, flops = quantity("latency_infer"), quantity("place_flops")
    appearance, points = looks(row["module"] for row in rows), []
    several = len({row["place"] for row in rows}) > 1
    for row in rows:
        own, look = read_number(row, time), appearance[row["module"]]
        if own is None:
            continue
        name = f"{label_of(row)} {row['place'].rpartition(':')[2]}" if several else label_of(row)
        across = row["place_flops"] / flops.unit.factor
        bar = axes.vlines(across, *own.ends, color=look.colour, linewidth=1.4, alpha=PALE if own.unknown else 0.85)
        bar.set_gid(drawing.detail(f"{name}: {own.told('ms')}, {across:.3g} G"))
        if not own.unknown:
            axes.scatter(across, own.value, s=36, c=look.colour, marker=look.marker, zorder=2)
        points.append((across, math.sqrt(own.ends[0] * own.ends[1]), wrapped(name, NAME)))
    axes.set(xscale="log", yscale="log")
    axes.grid(which="major")
    axes.margins(0.16)
    for which in ("x", "y"):
        log_axis(axes, which)
    return points


FIGURES = (
    FigureKind("places", "Added time against added GFLOPs", "rows of a comparison at a place, with predicted times",
         _rows, times_at_places, drawn="always", order=95),
)  # fmt: skip
