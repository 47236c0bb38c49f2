"""Figures of recall: the accuracy of each module on each task, against its cost, and against the number of marks."""

import json
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ctxbench.metrics import quantity
from ctxbench.metrics.base import RecordRow
from ctxbench.metrics.recall import KINDS, first_of, from_histogram
from ctxbench.results.rows import rows_of

from ..panels import Panel, label_of, marked_label_of, origin_of
from .labels import freeze_layout, place_labels
from .layout import NAME, legend_below, names_of, parts, wrapped
from .points import front_of
from .style import DASHES, FAINT, INK, Drawing, log_axis, looks

# Percent: ten digits.
CHANCE = 10
# What ability is drawn against.
COSTS = ("latency_infer", "memory_train")
# The points of two settings at one number of marks are so many times apart.
BESIDE = 1.08


def has_recall(panels: Sequence[Panel]) -> bool:
    return any(len(_rows(panel)) > 1 for panel in panels)


def _rows(panel: Panel) -> pd.DataFrame:
    """The rows with an accuracy, the most able first: by the mean over their tasks."""
    columns = [f"recall_{kind}" for kind in KINDS]
    if not {*columns} <= {*panel.frame}:
        return panel.frame.iloc[:0]
    order = panel.frame[columns].astype("float64").mean(axis=1)
    return panel.frame.assign(order=order)[order.notna()].sort_values("order", ascending=False, kind="stable")


def recall_by_task(panels: Sequence[Panel]) -> Drawing:
    """A column for each task: accuracy with its 95 % interval over seeds, and a line at chance."""
    shown = [(panel, rows.assign(family="")) for panel in panels if len(rows := _rows(panel)) > 1]
    names = [names_of(rows) for _, rows in shown]
    width = max(own.width for own in names) + 6.0
    heights = [own.height + 0.9 for own in names]
    figure, found = parts("Recall: which context a module brings", width, shown, heights, ("measured",))
    drawing = Drawing(figure, "Accuracy on three small tasks, mean over seeds with its 95 % interval; chance is 10 %.")
    for (_, rows), part, own in zip(shown, found, names, strict=True):
        all_axes = part.subplots(1, len(KINDS), sharey=True)
        for kind, axes in zip(KINDS, all_axes, strict=True):
            _task(drawing, axes, rows, kind, own.middles)
            axes.set(ylim=(own.height, 0), xlim=(0, 100), title=kind, xlabel="accuracy (%)")
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
        all_axes[0].set_yticks(own.middles, own.texts)
    return drawing


def _task(drawing: Drawing, axes: Axes, rows: pd.DataFrame, kind: str, places: Sequence[float]) -> None:
    appearance = looks(rows["module"])
    axes.axvline(CHANCE, color=INK, linewidth=0.6, linestyle=":")
    for row, place in zip(rows_of(rows), places, strict=True):
        if row[f"recall_{kind}"] is None:
            axes.text(2, place, "none", va="center", fontsize=8, color=FAINT)
            continue
        found, look = first_of(kind, row["recall_curve"]), appearance[row["module"]]
        if found["low"] is not None:
            axes.plot([found["low"], found["high"]], [place, place], color=INK, linewidth=0.8, zorder=3)
        (point,) = axes.plot(found["accuracy"], place, marker=look.marker, color=look.colour, zorder=2)
        point.set_gid(drawing.detail(f"{label_of(row)}, {kind}: {found['accuracy']:.0f} %"))


def has_ability(panels: Sequence[Panel]) -> bool:
    return any(len(_with_costs(panel)) > 1 for panel in panels)


def _with_costs(panel: Panel) -> pd.DataFrame:
    return _rows(panel).dropna(subset=[quantity(key).column for key in COSTS])


def ability(panels: Sequence[Panel]) -> Drawing:
    """Accuracy on each task against the time and the memory of a block, with the front of what nothing beats."""
    shown = [(panel, rows) for panel in panels if len(rows := _with_costs(panel)) > 1]
    figure, found = parts("Ability against cost", 10.5, shown, [7.4] * len(shown), ("measured",))
    drawing = Drawing(
        figure, "Accuracy on three small tasks against time and memory; dashed: nothing is cheaper and better."
    )
    fronts: list[tuple[Axes, pd.DataFrame]] = []
    for (_, rows), part in zip(shown, found, strict=True):
        grid = part.subplots(len(COSTS), len(KINDS), sharex="row", sharey=True)
        for key, line in zip(COSTS, grid, strict=True):
            fronts += [(axes, _against(drawing, axes, rows, kind, key)) for kind, axes in zip(KINDS, line, strict=True)]
    freeze_layout(figure)
    for axes, front in fronts:
        names = [wrapped(marked_label_of(row), NAME) for row in rows_of(front)]
        place_labels(axes, front["x"], front["y"], names, [3.0] * len(names))
    return drawing


def _against(drawing: Drawing, axes: Axes, rows: pd.DataFrame, kind: str, key: str) -> pd.DataFrame:
    """Draw the points and the front; the rows of the front, with their `x` and `y`."""
    each, appearance = quantity(key), looks(rows["module"])
    placed = rows.assign(x=rows[each.column].astype("float64") / each.unit.factor, y=rows[f"recall_{kind}"])
    placed = placed.dropna(subset="y")
    for row in rows_of(placed):
        look, found = appearance[row["module"]], first_of(kind, row["recall_curve"])
        if found["low"] is not None:
            axes.vlines(row["x"], found["low"], found["high"], color=FAINT, linewidth=0.7, zorder=1)
        (point,) = axes.plot(row["x"], row["y"], look.marker, color=look.colour, markersize=5, zorder=2)
        point.set_gid(drawing.detail(f"{label_of(row)}, {kind}: {row['y']:.0f} %, {row['x']:.3g} {each.unit.symbol}"))
    able = placed[placed["y"] > 2 * CHANCE]
    front = able.loc[front_of(able.assign(y=-able["y"])).index]
    axes.step(front["x"], front["y"], where="post", color=FAINT, linewidth=1.1, linestyle="--", zorder=1)
    axes.axhline(CHANCE, color=INK, linewidth=0.6, linestyle=":")
    log_axis(axes, "x")
    axes.set(ylim=(0, 105), title=kind, ylabel="accuracy (%)")
    axes.label_outer()
    axes.set_xlabel(f"{each.noun}, {each.unit.symbol} ({origin_of(each, rows).partition(',')[0]})")
    axes.tick_params(labelbottom=True)
    axes.margins(x=0.12)
    axes.grid(which="major")
    return front


def has_marks(panels: Sequence[Panel]) -> bool:
    return any(len(_marks(panel)) for panel in panels)


def _marks(panel: Panel) -> pd.DataFrame:
    """The rows that were asked to look up among two or more numbers of marks."""
    if "recall_curve" not in panel.frame:
        return panel.frame.iloc[:0]
    curves = panel.frame["recall_curve"].fillna("")
    return panel.frame[[len(lookups(text or "{}")) > 1 for text in curves]]


def lookups(curve: str) -> dict[int, dict[str, Any]]:
    """What was found by the number of marks."""
    found = {name.partition("-"): each for name, each in json.loads(curve).items()}
    return {int(marks): each for (kind, _, marks), each in found.items() if kind == "lookup"}


def recall_by_marks(panels: Sequence[Panel]) -> Drawing:
    """Accuracy against the number of marks, axes for each module and a line for each of its settings."""
    shown = [(panel, rows) for panel in panels if len(rows := _marks(panel))]
    columns = max(rows["module"].nunique() for _, rows in shown)
    figure, found = parts(
        "Recall by the number of marks", 2.9 * columns + 0.4, shown, [4.0] * len(shown), ("measured",)
    )
    drawing = Drawing(
        figure,
        "Accuracy in looking up the cell with the same mark, against the number of marks, with its 95 % interval over "
        "seeds. Dotted: a guess from the histogram of the digits with marks.",
    )
    for (_, rows), part in zip(shown, found, strict=True):
        groups = dict(iter(rows.groupby("module", sort=False)))
        for axes, own in zip(part.subplots(1, columns, sharey=True, squeeze=False).flat, groups.values(), strict=False):
            _lines(drawing, axes, rows_of(own))
    return drawing


def _lines(drawing: Drawing, axes: Axes, rows: Sequence[RecordRow]) -> None:
    for number, (row, dash) in enumerate(zip(rows, cycle(DASHES), strict=False)):
        found = lookups(row["recall_curve"])
        beside = BESIDE ** (number - (len(rows) - 1) / 2)
        x = [beside * marks for marks in found]
        look = looks([row["module"]])[row["module"]]
        values = [each["accuracy"] for each in found.values()]
        (line,) = axes.plot(
            x,
            values,
            marker=look.marker,
            color=look.colour,
            linestyle=dash,
            label=row["settings"] or "default",
        )
        line.set_gid(drawing.detail(f"{label_of(row)}: {', '.join(f'{value:.0f} %' for value in values)}"))
        for place, each in zip(x, found.values(), strict=True):
            if each["low"] is not None:
                axes.vlines(place, each["low"], each["high"], color=FAINT, linewidth=0.8, zorder=1)
        axes.set_title(row["name"])
    few, *_, many = found
    marks = range(few, many + 1)
    axes.plot(marks, [from_histogram(2 * each - 1) for each in marks], color=INK, linewidth=0.6, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(ylim=(0, 105), xlabel="marks", ylabel="accuracy (%)")
    axes.label_outer()
    axes.grid(which="major")
    legend_below(axes)
