"""Effective rank of the input and of the output of each module, below each other."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from ctxbench.base.number import significant
from ctxbench.model.metric import RecordRow
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.layout import PAGE, FigureSize, parts, without_family
from ctxbench.report.figures.style import FAINT, INK, SMALL, Drawing, looks
from ctxbench.report.panels import Panel, label_of
from ctxbench.results.rows import by_values

_IN, _OUT = "spectrum_rank_in", "spectrum_rank_out"
# Inches of a module's line, and of what is above and below the lines.
_LINE, _ASIDE = 0.125, 0.8


def _rows(panel: Panel) -> list[RecordRow]:
    return [row for row in panel.rows if row[_IN] is not None and row[_OUT] is not None]


def ranks(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """A line for each module, the one that lowers the rank most at the top: a point for each setting."""
    shown = [(panel, rows) for panel in panels if (rows := _rows(panel))]
    modules = [by_values(rows, "name") for _, rows in shown]
    drawn = [(panel, without_family(rows)) for panel, rows in shown]
    heights = [_LINE * len(own) + _ASIDE for own in modules]
    figure, found = parts("Effective rank before and after each module", sheet, drawn, heights)
    drawing = Drawing(figure, "Effective rank of the input (bar) and of the untrained module's output (point).")
    for own, part in zip(modules, found, strict=True):
        axes = part.subplots()
        order = sorted(own.values(), key=lambda rows: -min(row[_OUT] / row[_IN] for row in rows))
        for place, rows in enumerate(order):
            _line(drawing, axes, place, rows)
        axes.set_yticks(range(len(order)), [rows[0]["name"] for rows in order], fontsize=SMALL)
        axes.set(ylim=(-0.7, len(order) - 0.3), xlabel="effective rank of the output; bar: of the input")
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
    return drawing


def _line(drawing: Drawing, axes: Axes, place: int, rows: Sequence[RecordRow]) -> None:
    (look,) = looks(row["module"] for row in rows).values()
    for row in rows:
        axes.plot([row[_IN], row[_OUT]], [place, place], color=FAINT, linewidth=0.8, zorder=1)
        axes.plot(row[_IN], place, "|", color=INK, markersize=5, zorder=2)
        (point,) = axes.plot(row[_OUT], place, look.marker, color=look.colour, markersize=4, zorder=3)
        point.set_gid(drawing.detail(f"{label_of(row)}: {significant(row[_IN])} to {significant(row[_OUT])}"))


FIGURES = (
    FigureKind("ranks", "Effective ranks before and after", "rows with the metric spectrum",
         _rows, ranks, drawn="always", order=70),
)  # fmt: skip
