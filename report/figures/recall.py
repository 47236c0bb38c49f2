"""The figure of recall: the accuracy of each module on each task, beside its time where the run has one."""

import json
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from ctxbench.metrics.recall import KINDS
from ctxbench.results.csv_file import rows_of

from .layout import names_of, parts
from .panels import Panel, label_of
from .style import FAINT, INK, Drawing, looks

# Percent: ten digits.
CHANCE = 10


def has_recall(panels: Sequence[Panel]) -> bool:
    return any(len(_rows(panel)) > 1 for panel in panels)


def _rows(panel: Panel) -> pd.DataFrame:
    """The rows with an accuracy, the most able last: by the mean over the tasks."""
    columns = [f"recall_{kind}" for kind in KINDS]
    if not {*columns} <= {*panel.frame}:
        return panel.frame.iloc[:0]
    values = panel.frame[columns].astype("float64")
    order = values.mean(axis=1)
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
        value = row[f"recall_{kind}"]
        if pd.isna(value):
            axes.text(2, place, "none", va="center", fontsize=8, color=FAINT)
            continue
        curve = json.loads(row["recall_curve"])
        found = next(each for name, each in curve.items() if name.partition("-")[0] == kind)
        if found["low"] is not None:
            axes.plot([found["low"], found["high"]], [place, place], color=INK, linewidth=0.8, zorder=3)
        look = appearance[row["module"]]
        (point,) = axes.plot(value, place, marker=look.marker, color=look.colour, zorder=2)
        point.set_gid(drawing.detail(f"{label_of(row)}, {kind}: {value:.0f} %"))
