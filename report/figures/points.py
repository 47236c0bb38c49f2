"""Point figures: latency against memory with the Pareto front, and published against measured."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ctxbench.base.mode import MODES, Mode
from ctxbench.base.number import rough_ratio, significant
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import quantities, quantity
from ctxbench.report.published import is_prefix
from ctxbench.results.rows import is_filled

from ..panels import Panel, label_of, marked_label_of, origin_of
from ..published import unit_of
from ..run_data import kind_of
from ..tables.cells import amount, basis, interval_of
from .labels import freeze_layout, place_labels
from .layout import CHARACTER, NAME, PAGE, FigureSize, parts, wrapped
from .style import FAINT, OWN_MARKER, PALE, Drawing, looks
from .ticks import log_axis

# Areas of the largest and the smallest marker, points squared.
_LARGEST, _SMALLEST = 140.0, 12.0
# With more names than this, each of the axes takes the whole width.
_CROWDED = 14
# How far from the line a point gets its ratio, as a logarithm.
_SEEN_OFF = 0.1
# Inches: the least wide axes of a pair and of several quantities, and how high those with many names are.
_PAIR, _LEAST, _HIGH = 3.0, 2.2, 4.0


@dataclass(frozen=True)
class NamedPoint:
    """A point to be named, in data coordinates; the radius of its marker in points."""

    x: float
    y: float
    label: str
    radius: float


def memory_column(panel: Panel, mode: Mode) -> str:
    """Memory as measured on a device of the kind that it is predicted for; elsewhere as predicted."""
    memory = quantity(f"memory_{mode}")
    targets = {row[memory.method_column] for row in panel.rows} - {None}
    there = any(target.startswith(kind_of(panel.device)) for target in targets)
    use_measured = there and is_filled(panel.rows, memory.measured_column)
    return memory.measured_column if use_measured else memory.column


def _pareto_rows(panel: Panel, mode: Mode) -> list[RecordRow]:
    costs = (memory_column(panel, mode), f"latency_{mode}_ms", "macs")
    return [row for row in panel.main if None not in [row[cost] for cost in costs]]


def has_pareto(panel: Panel) -> bool:
    """Return whether a panel has two rows with all three costs, which plugins bring."""
    if not {"macs", *(f"memory_{mode}" for mode in MODES)} <= quantities().keys():
        return False
    return any(len(_pareto_rows(panel, mode)) > 1 for mode in MODES)


def pareto(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Latency against memory, area by MACs, with the front of what nothing beats in both."""
    panels = [*filter(has_pareto, panels)]
    modes = [mode for mode in reversed(MODES) if any(len(_pareto_rows(panel, mode)) for panel in panels)]
    crowded = max(len(panel.main) for panel in panels) > _CROWDED
    columns = 1 if crowded else sheet.columns(_PAIR, len(modes))
    lines, width = -(-len(modes) // columns), sheet.width / columns
    height = _HIGH if crowded else 0.9 * width
    rows = [(panel, [row for mode in modes for row in _pareto_rows(panel, mode)]) for panel in panels]
    figure, found = parts("Time against memory", sheet, rows, [height * lines] * len(panels))
    drawing = Drawing(
        figure, "Time with its interval against peak memory, area by MACs; dashed: nothing is below it in both."
    )
    drawn: list[tuple[Axes, list[NamedPoint]]] = []
    for panel, part in zip(panels, found, strict=True):
        for number, (mode, axes) in enumerate(
            zip(modes, part.subplots(lines, columns, squeeze=False).flat, strict=True)
        ):
            if panel is not panels[0]:
                axes.sharex(drawn[number][0])
                axes.sharey(drawn[number][0])
            drawn.append((axes, _pareto_axes(drawing, axes, panel, mode, int(0.85 * width / CHARACTER))))
    for axes, _ in drawn:
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # the front does not move them
    for axes, points in drawn:
        _draw_front(axes, points)
    _finish(figure, drawn)
    return drawing


def _draw_front(axes: Axes, points: Sequence[NamedPoint]) -> None:
    """The staircase through the front, from the upper edge of the axes to the right one."""
    best = [points[place] for place in front_of([(point.x, point.y) for point in points])]
    if best:
        x, y = [point.x for point in best], [point.y for point in best]
        across = [x[0], *x, axes.get_xlim()[1]]
        up = [axes.get_ylim()[1], *y, y[-1]]
        axes.step(across, up, where="post", color=FAINT, linewidth=1.1, linestyle="--", zorder=1)


def _finish(figure: Figure, drawn: Sequence[tuple[Axes, Sequence[NamedPoint]]]) -> None:
    """Log axes, then a label at each point."""
    filled = [(axes, points) for axes, points in drawn if points]
    for axes, points in drawn:
        if not points:
            axes.set_axis_off()
    for axes, _ in filled:
        log_axis(axes, "x")
        log_axis(axes, "y")
        axes.tick_params(labelbottom=True, labelleft=True)
    freeze_layout(figure)
    for axes, points in filled:
        names = [wrapped(point.label, NAME) for point in points]
        x, y = [point.x for point in points], [point.y for point in points]
        place_labels(axes, x, y, names, [point.radius for point in points])


def _pareto_axes(drawing: Drawing, axes: Axes, panel: Panel, mode: Mode, width: int) -> list[NamedPoint]:
    """Draw the points of a mode; `width` is that of a line below the axes, in characters."""
    rows, column = _pareto_rows(panel, mode), memory_column(panel, mode)
    memory, time, macs_unit = quantity(f"memory_{mode}"), quantity(f"latency_{mode}"), quantity("macs").unit
    most = max((row["macs"] for row in rows), default=0)
    appearance = looks(row["module"] for row in rows)
    points = []
    for row in rows:
        look, across, up = appearance[row["module"]], row[column] / memory.unit.factor, row[time.column]
        size = max(_LARGEST * row["macs"] / most, _SMALLEST) if most else _SMALLEST
        if interval := interval_of(row, time):
            axes.vlines(across, *interval, color=FAINT, linewidth=0.8, zorder=1)
        alpha = 0.85 if interval else PALE
        above = 2 + (look.marker == OWN_MARKER)
        marker = axes.scatter(across, up, s=size, c=look.colour, marker=look.marker, alpha=alpha, zorder=above)
        costs = f"{significant(across)} MiB, {significant(row['macs'] / macs_unit.factor)} {macs_unit.symbol} MACs"
        text = f"{label_of(row)}: {mode} {amount(row, time, time.unit)} ms, {basis(row, time)}, {costs}"
        marker.set_gid(drawing.detail(text))
        points.append(NamedPoint(across, up, marked_label_of(row), math.sqrt(size) / 2))
    kind = origin_of(memory, rows) if column == memory.column else "measured"
    axes.set(xscale="log", yscale="log", ylabel="ms per pass")
    axes.set_title(mode)
    axes.grid(which="major")
    axes.margins(0.16)
    failed = [row for row in panel.main if row["status"] != "ok" and row[time.column] is None]
    missing = ", ".join(f"{label_of(row)} ({row['status']})" for row in failed)
    label = f"peak memory, MiB ({kind})"
    axes.set_xlabel(f"{label}\n{wrapped(f'not shown: {missing}', width)}" if missing else label)
    return points


def front_of(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points (x, y) that no other is below in both, by rising x; no equal ones."""
    found: list[int] = []
    for place in sorted(range(len(points)), key=lambda place: points[place]):
        if not found or points[place][1] < points[found[-1]][1]:
            found.append(place)
    return found


def _published_points(panel: Panel, each: Quantity) -> list[tuple[RecordRow, float, float]]:
    """Rows with a published and a number of ours, and both in the published unit."""
    found = []
    factor = unit_of(panel.run, each, panel.main).factor
    for row in panel.main:
        printed, ours = row[f"{each.key}_published"], row[each.column]
        # a time that was measured is one of another device
        is_comparable = not each.has_interval or row.get(each.origin_column) == "predicted"
        if printed is not None and ours and is_comparable and (published := _number(printed)) > 0 and ours > 0:
            found.append((row, published, ours / factor))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # such as a figure with an exponent in words


def published_points(panel: Panel) -> Iterator[tuple[str, list[tuple[RecordRow, float, float]]]]:
    """The points of each quantity that has any, by its key."""
    for key, each in quantities().items():
        if is_filled(panel.rows, f"{key}_published") and (points := _published_points(panel, each)):
            yield key, points


def published_against_ours(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Ours over published on log axes, one for each quantity, with the line where both are equal."""
    points = {panel: dict(published_points(panel)) for panel in panels}
    shown = [each for key, each in quantities().items() if any(key in own for own in points.values())]
    # Of each run the first panel with published numbers, and those with published times: counts are the same.
    timed = {panel for panel, own in points.items() if any(quantity(key).has_interval for key in own)}
    first = {id(panel.run): panel for panel in reversed(panels) if points[panel]}
    panels = [panel for panel in panels if panel in timed or first.get(id(panel.run)) is panel]
    columns = sheet.columns(_LEAST, 2 if len(shown) == 4 else min(3, len(shown)))
    lines = -(-len(shown) // columns)
    rows = [(panel, [row for own in points[panel].values() for row, *_ in own]) for panel in panels]
    origins = {origin_of(each, panel.main).partition(",")[0] for panel in panels for each in shown}
    heights = [0.92 * sheet.width / columns * lines] * len(panels)
    figure, found = parts("Ours against the published numbers", sheet, rows, heights, origins)
    device = (panels[0].run.published and panels[0].run.published.device) or "the paper's device"
    drawing = Drawing(figure, f"Published (times on {device}) against ours; on the line both are equal.")
    drawn: list[tuple[Axes, list[NamedPoint]]] = []
    for panel, part in zip(panels, found, strict=True):
        cells = list(part.subplots(lines, columns, squeeze=False).flat)
        for axes in cells[len(shown) :]:
            axes.set_axis_off()
        for each, axes in zip(shown, cells, strict=False):
            drawn.append((axes, _published_axes(drawing, axes, panel, each)))
    _finish(figure, drawn)
    return drawing


def _published_axes(drawing: Drawing, axes: Axes, panel: Panel, each: Quantity) -> list[NamedPoint]:
    points = _published_points(panel, each)
    appearance = looks(row["module"] for row, *_ in points)
    for row, x, y in points:
        look = appearance[row["module"]]
        (point,) = axes.plot(x, y, look.marker, color=look.colour, linestyle="", zorder=2)
        printed = row[f"{each.key}_published"]
        ratio = rough_ratio(y / x).text()
        text = f"{label_of(row)}: published {printed}, ours {significant(y)}, ratio {ratio}"
        point.set_gid(drawing.detail(text))
    shown = unit_of(panel.run, each, panel.main)
    unit = str(shown) if is_prefix(shown) else shown.symbol
    axes.set(xscale="log", yscale="log", xlabel=f"published, {unit}", ylabel=f"{origin_of(each, panel.main)}, {unit}")
    axes.set_title(each.title)
    axes.margins(0.2)
    axes.grid(which="major")
    if points:
        ends = np.array([*axes.get_xlim(), *axes.get_ylim()])
        line = [ends.min(), ends.max()]
        axes.set(xlim=line, ylim=line)
        axes.add_line(Line2D(line, line, color=FAINT, linewidth=0.9, zorder=1))
    return [NamedPoint(x, y, _off(label_of(row), y / x), 2.3) for row, x, y in points]


def _off(label: str, ratio: float) -> str:
    """The label; of a point that is seen to be off the line with how many times the published number ours is."""
    return f"{label}, {rough_ratio(ratio).text()}x" if abs(math.log(ratio)) > _SEEN_OFF else label
