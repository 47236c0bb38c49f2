"""Cost figures: costs relative to self-attention's, and the split of a training step into inference and the rest."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes

from ctxbench.base.mode import MODES, Mode
from ctxbench.base.number import significant
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import quantities, quantity

from ..panels import REFERENCE, Panel, is_reference, label_of, origin_of
from ..tables.cells import amount, basis, interval_of
from .layout import PAGE, FigureSize, RowLabels, names_of, parts
from .style import FAINT, INK, PALE, PAPER, SMALL, Drawing, looks
from .ticks import log_axis

# Inches of axes beside names.
_LEAST = 0.95
# What the figure of relative costs shows.
COSTS = ("macs", "memory_train", "latency_train", "latency_infer")


def _costs() -> list[Quantity]:
    """Quantities of COSTS that a metric here brings."""
    return [quantities()[key] for key in COSTS if key in quantities()]


def relative_quantities(panel: Panel) -> list[Quantity]:
    """The quantities of COSTS in which the reference has a number, not 0, and so has another row."""
    rows = panel.main
    reference = [row for row in rows if is_reference(row)]
    return [
        each
        for each in _costs()
        if reference
        and all(row[each.column] for row in reference)
        and sum(row[each.column] is not None for row in rows) > 1
    ]


def relative_costs(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Each cost over self-attention's on a log axis, a column a quantity; the rows by the last one that they have."""
    relative = {panel: relative_quantities(panel) for panel in panels}
    panels = [panel for panel in panels if relative[panel]]
    shown = [each for each in _costs() if any(each in relative[panel] for panel in panels)]
    ordered = [sorted(panel.main, key=_by(relative[panel][-1])) for panel in panels]
    names = list(map(names_of, ordered))
    columns = sheet.columns(_LEAST, len(shown), max(own.width for own in names))
    lines = {panel: -(-len(relative[panel]) // columns) for panel in panels}
    heights = [(own.height + 0.85) * lines[panel] for panel, own in zip(panels, names, strict=True)]
    figure, found = parts("Costs relative to self-attention", sheet, [*zip(panels, ordered, strict=True)], heights)
    drawing = Drawing(
        figure, f"Cost over that of {REFERENCE}, which is 100 %; of times with the interval of the row's own time."
    )
    for panel, rows, part, own in zip(panels, ordered, found, names, strict=True):
        grid = part.subplots(lines[panel], columns, squeeze=False)
        for each, axes in zip(relative[panel], grid.flat, strict=False):
            _relative_axes(drawing, axes, rows, each, own)
        for axes in grid[:, 1:].flat:
            axes.set_yticklabels([])
        for axes in grid.flat[len(relative[panel]) :]:
            axes.set_axis_off()
    return drawing


def _by(each: Quantity) -> Callable[[RecordRow], float]:
    """The order of rows by a quantity; those without a number are the last."""
    return lambda row: math.inf if row[each.column] is None else row[each.column]


def _relative_axes(drawing: Drawing, axes: Axes, rows: Sequence[RecordRow], each: Quantity, names: RowLabels) -> None:
    values = [math.nan if row[each.column] is None else float(row[each.column]) for row in rows]
    unit = next(value for value, row in zip(values, rows, strict=True) if is_reference(row)) / 100
    origin = origin_of(each, rows).replace(", ", ",\n")
    title = f"{each.title}\n({origin})" if each.origin == "predicted" else each.title
    appearance = looks(row["module"] for row in rows)
    axes.axvline(100, color=INK, linewidth=0.6, linestyle=":")
    for place, value, row in zip(names.middles, values, rows, strict=True):
        if not value > 0:
            state = "0" if value == 0 else str(row["status"]) if row["status"] != "ok" else "not known"
            axes.text(
                0.02, place, state, va="center", fontsize=SMALL, color=FAINT, transform=axes.get_yaxis_transform()
            )
            continue
        look, interval = appearance[row["module"]], interval_of(row, each)
        if interval:
            axes.plot([end / unit for end in interval], [place, place], color=INK, linewidth=0.8, zorder=3)
        alpha = PALE if each.has_interval and not interval else None
        (point,) = axes.plot(value / unit, place, marker=look.marker, color=look.colour, alpha=alpha, zorder=2)
        cost = f"{amount(row, each, each.unit)} {each.unit.symbol}"
        point.set_gid(drawing.detail(f"{label_of(row)}: {cost}, {value / unit:.3g} % of {REFERENCE}"))
        axes.text(
            1.02, place, significant(value / unit, 2), va="center", fontsize=SMALL, transform=axes.get_yaxis_transform()
        )
    log_axis(axes, "x")
    axes.set(ylim=(names.height, 0), title=title, xlabel=f"% of {REFERENCE}")
    axes.set_yticks(names.middles, names.texts)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def has_split(panel: Panel) -> bool:
    return any(all(row[f"latency_{mode}_ms"] is not None for mode in MODES) for row in panel.rows)


def train_infer_split(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Inference and training time of each module on one axis, with intervals and the ratio of the two."""
    panels = [*filter(has_split, panels)]
    names = [names_of(panel.main) for panel in panels]
    drawn, heights = [(panel, panel.main) for panel in panels], [own.height + 0.8 for own in names]
    figure, found = parts("Time of training and inference", sheet, drawn, heights)
    drawing = Drawing(figure, "Time of a pass, inference (open) and training (filled).")
    first: Axes | None = None
    for panel, part, own in zip(panels, found, names, strict=True):
        axes = part.subplots()
        if first:
            axes.sharex(first)
        _split_axes(drawing, axes, panel, own)
        first = axes
    return drawing


def _split_axes(drawing: Drawing, axes: Axes, panel: Panel, names: RowLabels) -> None:
    rows = panel.main
    appearance = looks(row["module"] for row in rows)
    for place, row in zip(names.middles, rows, strict=True):
        look = appearance[row["module"]]
        known = [mode for mode in MODES if row[f"latency_{mode}_ms"] is not None]
        if not known:
            axes.text(
                0.02,
                place,
                row["status"],
                va="center",
                fontsize=SMALL,
                color=FAINT,
                transform=axes.get_yaxis_transform(),
            )
        if len(known) == 2:
            ends = [row["latency_infer_ms"], row["latency_train_ms"]]
            axes.plot(ends, [place, place], color=look.colour, linewidth=1.5, zorder=1)
            ratio = significant(ends[1] / ends[0], 2)
            axes.text(1.01, place, f"{ratio} x", va="center", fontsize=SMALL, transform=axes.get_yaxis_transform())
        for mode in known:
            _timed_point(drawing, axes, row, mode, place, look.colour, look.marker)
    log_axis(axes, "x")
    axes.set(ylim=(names.height, 0), xlabel="ms per pass")
    axes.set_yticks(names.middles, names.texts)
    axes.grid(axis="x")
    axes.text(1.01, 1.01, "train / infer", fontsize=SMALL, va="bottom", transform=axes.transAxes)


def _timed_point(
    drawing: Drawing, axes: Axes, row: RecordRow, mode: Mode, place: float, colour: str, marker: str
) -> None:
    time = quantity(f"latency_{mode}")
    interval = interval_of(row, time)
    if interval:
        axes.plot(interval, [place, place], color=INK, linewidth=0.8, zorder=3)
    filling = colour if mode == "train" else PAPER
    style: dict[str, Any] = {"marker": marker, "color": colour, "markerfacecolor": filling}
    (point,) = axes.plot(row[time.column], place, alpha=None if interval else PALE, zorder=2, **style)
    text = f"{amount(row, time, time.unit)} ms, {basis(row, time)}"
    point.set_gid(drawing.detail(f"{label_of(row)}, {mode}: {text}"))
