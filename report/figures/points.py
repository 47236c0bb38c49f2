"""Point figures: latency against memory with the Pareto front, and published against measured."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ctxbench.base.mode import MODES, Mode
from ctxbench.base.number import rough_ratio, significant
from ctxbench.model.metric import Quantity
from ctxbench.model.metrics import quantities, quantity
from ctxbench.report.published import is_prefix

from ..panels import Panel, label_of, marked_label_of, origin_of
from ..published import unit_of
from ..run_data import kind_of
from ..tables.cells import amount, basis, interval_of
from .labels import freeze_layout, place_labels
from .layout import CHARACTER, NAME, PAGE, FigureSize, parts, wrapped
from .style import FAINT, PALE, Drawing, looks
from .ticks import log_axis

# Areas of the largest and the smallest marker, points squared.
_LARGEST, _SMALLEST = 140.0, 12.0
# With more names than this, each of the axes takes the whole width.
_CROWDED = 14
# Inches: the least wide axes of a pair and of several quantities, and how high those with many names are.
_PAIR, _LEAST, _HIGH = 3.0, 2.2, 4.0


def memory_column(panel: Panel, mode: Mode) -> str:
    """Memory as measured on a device of the kind that it is predicted for; elsewhere as predicted."""
    memory = quantity(f"memory_{mode}")
    targets = panel.frame[memory.method_column].dropna().unique()
    there = any(target.startswith(kind_of(panel.device)) for target in targets)
    use_measured = there and panel.frame[memory.measured_column].notna().any()
    return memory.measured_column if use_measured else memory.column


def _pareto_rows(panel: Panel, mode: Mode) -> pd.DataFrame:
    frame = panel.main
    known = frame[memory_column(panel, mode)].notna() & frame[f"latency_{mode}_ms"].notna() & frame["macs"].notna()
    return frame[known]


def has_pareto(panels: Sequence[Panel]) -> bool:
    """Return whether any panel has two rows with all three costs, which plugins bring."""
    if not {"macs", *(f"memory_{mode}" for mode in MODES)} <= quantities().keys():
        return False
    return any(len(_pareto_rows(panel, mode)) > 1 for panel in panels for mode in MODES)


def pareto(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Latency against memory, area by MACs, with the front of what nothing beats in both."""
    panels = [panel for panel in panels if has_pareto([panel])]
    modes = [mode for mode in reversed(MODES) if any(len(_pareto_rows(panel, mode)) for panel in panels)]
    crowded = max(len(panel.main) for panel in panels) > _CROWDED
    columns = 1 if crowded else sheet.columns(_PAIR, len(modes))
    lines, width = -(-len(modes) // columns), sheet.width / columns
    height = _HIGH if crowded else 0.9 * width
    rows = [(panel, pd.concat([_pareto_rows(panel, mode) for mode in modes])) for panel in panels]
    figure, found = parts("Time against memory", sheet, rows, [height * lines] * len(panels))
    drawing = Drawing(
        figure, "Time with its interval against peak memory, area by MACs; dashed: nothing is below it in both."
    )
    drawn: list[tuple[Axes, pd.DataFrame]] = []
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


def _draw_front(axes: Axes, points: pd.DataFrame) -> None:
    """The staircase through the front, from the upper edge of the axes to the right one."""
    best = front_of(points)
    if len(best):
        x, y = best["x"].to_list(), best["y"].to_list()
        across = [x[0], *x, axes.get_xlim()[1]]
        up = [axes.get_ylim()[1], *y, y[-1]]
        axes.step(across, up, where="post", color=FAINT, linewidth=1.1, linestyle="--", zorder=1)


def _finish(figure: Figure, drawn: Sequence[tuple[Axes, pd.DataFrame]]) -> None:
    """Log axes, then a label at each point: `x`, `y`, `label` and `radius` of the marker in points."""
    filled = [(axes, points) for axes, points in drawn if len(points)]
    for axes, points in drawn:
        if points.empty:
            axes.set_axis_off()
    for axes, _ in filled:
        log_axis(axes, "x")
        log_axis(axes, "y")
        axes.tick_params(labelbottom=True, labelleft=True)
    freeze_layout(figure)
    for axes, points in filled:
        names = [wrapped(label, NAME) for label in points["label"]]
        place_labels(axes, points["x"], points["y"], names, list(points["radius"]))


def _pareto_axes(drawing: Drawing, axes: Axes, panel: Panel, mode: Mode, width: int) -> pd.DataFrame:
    """Draw the points of a mode; `width` is that of a line below the axes, in characters."""
    frame = _pareto_rows(panel, mode)
    rows = panel.records_of(frame)
    memory, time, macs_unit = quantity(f"memory_{mode}"), quantity(f"latency_{mode}"), quantity("macs").unit
    x = frame[memory_column(panel, mode)].astype("float64") / memory.unit.factor
    y = frame[f"latency_{mode}_ms"]
    macs = frame["macs"].astype("float64")
    area = np.maximum(_LARGEST * macs / macs.max(), _SMALLEST)
    appearance = looks(frame["module"])
    for row, across, up, size in zip(rows, x, y, area, strict=True):
        look = appearance[row["module"]]
        if interval := interval_of(row, time):
            axes.vlines(across, *interval, color=FAINT, linewidth=0.8, zorder=1)
        alpha = 0.85 if interval else PALE
        marker = axes.scatter(across, up, s=size, c=look.colour, marker=look.marker, alpha=alpha, zorder=2)
        costs = f"{significant(across)} MiB, {significant(row['macs'] / macs_unit.factor)} {macs_unit.symbol} MACs"
        text = f"{label_of(row)}: {mode} {amount(row, time, time.unit)} ms, {basis(row, time)}, {costs}"
        marker.set_gid(drawing.detail(text))
    kind = origin_of(memory, rows) if memory_column(panel, mode) == memory.column else "measured"
    axes.set(xscale="log", yscale="log", ylabel="ms per pass")
    axes.set_title(mode)
    axes.grid(which="major")
    axes.margins(0.16)
    every = panel.main
    failed = every[(every["status"] != "ok") & every[f"latency_{mode}_ms"].isna()]
    missing = ", ".join(f"{label_of(row)} ({row['status']})" for row in panel.records_of(failed))
    label = f"peak memory, MiB ({kind})"
    axes.set_xlabel(f"{label}\n{wrapped(f'not shown: {missing}', width)}" if missing else label)
    labels = [marked_label_of(row) for row in rows]
    return pd.DataFrame({"x": x, "y": y, "radius": np.sqrt(area) / 2, "label": labels})


def front_of(points: pd.DataFrame) -> pd.DataFrame:
    """The points (`x` memory, `y` time) that no other is below in both, by rising `x`; no equal ones."""
    ordered = points.sort_values(["x", "y"]).drop_duplicates(["x", "y"])
    lowest = ordered["y"].cummin().shift(fill_value=np.inf)
    return ordered[ordered["y"] < lowest]


def _published_points(panel: Panel, each: Quantity) -> pd.DataFrame:
    """Rows with a published and a number of ours: `x` published, `y` ours, in the published unit."""
    frame = panel.main
    x = pd.to_numeric(frame[f"{each.key}_published"], errors="coerce").astype("float64")
    y = frame[each.column].astype("float64") / unit_of(panel.run, each, panel.records_of(frame)).factor
    both = (x > 0) & (y > 0)
    if each.has_interval:  # a time that was measured is one of another device
        both &= frame[each.origin_column] == "predicted" if each.origin_column in frame else False
    return frame[both].assign(x=x[both], y=y[both])


def _published(panel: Panel) -> Iterator[tuple[str, pd.DataFrame]]:
    """The points of each quantity that has any, by its key."""
    filled = set(panel.frame.columns[panel.frame.notna().any()])
    for key, each in quantities().items():
        if f"{key}_published" in filled and len(points := _published_points(panel, each)):
            yield key, points


def has_published(panels: Sequence[Panel]) -> bool:
    return any(True for panel in panels for _ in _published(panel))


def published_against_ours(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Ours over published on log axes, one for each quantity, with the line where both are equal."""
    points = {panel: dict(_published(panel)) for panel in panels}
    shown = [each for key, each in quantities().items() if any(key in own for own in points.values())]
    # Of each run the first panel with published numbers, and those with published times: counts are the same.
    timed = {panel for panel, own in points.items() if any(quantity(key).has_interval for key in own)}
    first = {id(panel.run): panel for panel in reversed(panels) if points[panel]}
    panels = [panel for panel in panels if panel in timed or first.get(id(panel.run)) is panel]
    columns = sheet.columns(_LEAST, 2 if len(shown) == 4 else min(3, len(shown)))
    lines = -(-len(shown) // columns)
    rows = [(panel, pd.concat([*points[panel].values()])) for panel in panels]
    origins = {origin_of(each, panel.records_of(panel.main)).partition(",")[0] for panel in panels for each in shown}
    heights = [0.92 * sheet.width / columns * lines] * len(panels)
    figure, found = parts("Ours against the published numbers", sheet, rows, heights, origins)
    device = (panels[0].run.published and panels[0].run.published.device) or "the paper's device"
    drawing = Drawing(figure, f"Published (times on {device}) against ours; on the line both are equal.")
    drawn: list[tuple[Axes, pd.DataFrame]] = []
    for panel, part in zip(panels, found, strict=True):
        cells = list(part.subplots(lines, columns, squeeze=False).flat)
        for axes in cells[len(shown) :]:
            axes.set_axis_off()
        for each, axes in zip(shown, cells, strict=False):
            drawn.append((axes, _published_axes(drawing, axes, panel, each)))
    _finish(figure, drawn)
    return drawing


def _published_axes(drawing: Drawing, axes: Axes, panel: Panel, each: Quantity) -> pd.DataFrame:
    frame = _published_points(panel, each)
    appearance = looks(frame["module"])
    rows = panel.records_of(frame)
    for row, x, y in zip(rows, frame["x"], frame["y"], strict=True):
        look = appearance[row["module"]]
        (point,) = axes.plot(x, y, look.marker, color=look.colour, linestyle="", zorder=2)
        printed = row[f"{each.key}_published"]
        ratio = rough_ratio(y / x).text()
        text = f"{label_of(row)}: published {printed}, ours {significant(y)}, ratio {ratio}"
        point.set_gid(drawing.detail(text))
    main = panel.records_of(panel.main)
    shown = unit_of(panel.run, each, main)
    unit = str(shown) if is_prefix(shown) else shown.symbol
    axes.set(xscale="log", yscale="log", xlabel=f"published, {unit}", ylabel=f"{origin_of(each, main)}, {unit}")
    axes.set_title(each.title)
    axes.margins(0.2)
    axes.grid(which="major")
    if len(frame):
        ends = np.array([*axes.get_xlim(), *axes.get_ylim()])
        line = [ends.min(), ends.max()]
        axes.set(xlim=line, ylim=line)
        axes.add_line(Line2D(line, line, color=FAINT, linewidth=0.9, zorder=1))
    return frame.assign(label=[label_of(row) for row in rows], radius=2.3)
