"""Figures of recall: the accuracy of each module on each task, against its cost, and against the number of marks."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ctxbench.metrics import quantity
from ctxbench.metrics.base import RecordRow
from ctxbench.metrics.recall import KINDS, first_of, from_histogram
from ctxbench.results.rows import rows_of

from ..panels import Panel, label_of, origin_of
from .layout import CHARACTER, KEY, LINE, PAGE, Sheet, legend_below, names_of, parts, wrapped
from .points import front_of
from .style import DASHES, FAINT, INK, PALE, SMALL, TEXT, Drawing, looks
from .ticks import log_axis

# Percent: ten digits.
CHANCE = 10
# What ability is drawn against.
COSTS = ("latency_infer", "memory_train")
# Inches: the least wide axes, and how high they are with what is around them; characters of a line of a legend.
_LEAST, _HEIGHT, _ENTRY = 1.6, 2.2, 18
# Of the points of a module with several settings, in turn.
_FILLS = ("full", "none", "left", "top")
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


def recall_by_task(panels: Sequence[Panel], sheet: Sheet = PAGE) -> Drawing:
    """A column for each task: accuracy with its 95 % interval over seeds, and a line at chance."""
    shown = [(panel, rows.assign(family="")) for panel in panels if len(rows := _rows(panel)) > 1]
    names = [names_of(rows) for _, rows in shown]
    heights = [own.height + 0.7 for own in names]
    figure, found = parts("Recall: which context a module brings", sheet, shown, heights, ("trained",))
    drawing = Drawing(figure, "Accuracy on three small tasks, mean over seeds with its 95 % interval; chance is 10 %.")
    for (_, rows), part, own in zip(shown, found, names, strict=True):
        all_axes = part.subplots(1, len(KINDS), sharey=True)
        for kind, axes in zip(KINDS, all_axes, strict=True):
            _task(drawing, axes, rows, kind, own.middles)
            axes.set(ylim=(own.height, 0), xlim=(0, 100), title=kind)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
        all_axes[0].set_yticks(own.middles, own.texts)
        part.supxlabel("accuracy (%)", fontsize=TEXT)
    return drawing


def _task(drawing: Drawing, axes: Axes, rows: pd.DataFrame, kind: str, places: Sequence[float]) -> None:
    appearance = looks(rows["module"])
    axes.axvline(CHANCE, color=INK, linewidth=0.6, linestyle=":")
    for row, place in zip(rows_of(rows), places, strict=True):
        if row[f"recall_{kind}"] is None:
            axes.text(2, place, "none", va="center", fontsize=SMALL, color=FAINT)
            continue
        found, look = first_of(kind, row["recall_curve"]), appearance[row["module"]]
        if found["low"] is not None:
            axes.plot([found["low"], found["high"]], [place, place], color=INK, linewidth=0.8, zorder=3)
        (point,) = axes.plot(found["accuracy"], place, marker=look.marker, color=look.colour, clip_on=False, zorder=2)
        point.set_gid(drawing.detail(f"{label_of(row)}, {kind}: {found['accuracy']:.0f} %"))


def has_ability(panels: Sequence[Panel]) -> bool:
    return any(len(_with_costs(panel)) > 1 for panel in panels)


def _with_costs(panel: Panel) -> pd.DataFrame:
    return _rows(panel).dropna(subset=[quantity(key).column for key in COSTS])


def ability(panels: Sequence[Panel], sheet: Sheet = PAGE) -> Drawing:
    """Accuracy on each task against the time and the memory of a block, with the front of what nothing beats."""
    shown = [(panel, rows) for panel in panels if len(rows := _with_costs(panel)) > 1]
    columns = len(KINDS) if sheet.columns(_LEAST, len(KINDS)) == len(KINDS) else len(COSTS)
    cells = [(kind, key) for key in COSTS for kind in KINDS]
    cells = cells if columns == len(KINDS) else sorted(cells, key=lambda cell: KINDS.index(cell[0]))
    beside = sheet.columns(CHARACTER * _ENTRY + KEY, len(cells))
    lines = [sum(_entry(row).count("\n") + 1 for row in rows_of(rows)) for _, rows in shown]
    heights = [_HEIGHT * len(cells) / columns + LINE * -(-count // beside) for count in lines]
    figure, found = parts("Ability against cost", sheet, shown, heights, ("trained", "measured"))
    drawing = Drawing(
        figure, "Accuracy on three small tasks against time and memory; dashed: nothing is cheaper and better."
    )
    for (_, rows), part in zip(shown, found, strict=True):
        grid = part.subplots(len(cells) // columns, columns, sharey=True)
        for (kind, key), axes in zip(cells, grid.flat, strict=True):
            _against(drawing, axes, rows, kind, key)
        part.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower left", ncols=beside, borderpad=0)
    return drawing


def _entry(row: RecordRow) -> str:
    """What the legend calls a row."""
    return wrapped(label_of(row), _ENTRY)


def _against(drawing: Drawing, axes: Axes, rows: pd.DataFrame, kind: str, key: str) -> None:
    """Draw the points, an entry of the legend each, and the front."""
    each, appearance = quantity(key), looks(rows["module"])
    placed = rows.assign(x=rows[each.column].astype("float64") / each.unit.factor, y=rows[f"recall_{kind}"])
    before: Counter[str] = Counter()
    for row in rows_of(placed.sort_values(["family", "module"], kind="stable")):
        look, fill = appearance[row["module"]], _FILLS[before[row["module"]] % len(_FILLS)]
        before[row["module"]] += 1
        place = ([], []) if row["y"] is None else ([row["x"]], [row["y"]])
        (point,) = axes.plot(*place, look.marker, color=look.colour, fillstyle=fill, zorder=2, label=_entry(row))
        if row["y"] is not None:
            found = first_of(kind, row["recall_curve"])
            if found["low"] is not None:
                axes.vlines(row["x"], found["low"], found["high"], color=look.colour, alpha=PALE, linewidth=0.7)
            text = f"{label_of(row)}, {kind}: {row['y']:.0f} %, {row['x']:.3g} {each.unit.symbol}"
            point.set_gid(drawing.detail(text))
    able = placed[placed["y"] > 2 * CHANCE]
    front = able.loc[front_of(able.assign(y=-able["y"])).index]
    axes.step(front["x"], front["y"], where="post", color=FAINT, linewidth=1.1, linestyle="--", zorder=1)
    axes.axhline(CHANCE, color=INK, linewidth=0.6, linestyle=":")
    axes.margins(x=0.12)
    log_axis(axes, "x")
    axes.set(ylim=(0, 105), title=kind, ylabel="accuracy (%)")
    axes.label_outer()
    axes.set_xlabel(f"{each.noun}, {each.unit.symbol}\n({origin_of(each, rows).partition(',')[0]})")
    axes.tick_params(labelbottom=True)
    axes.grid(which="major")


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


def recall_by_marks(panels: Sequence[Panel], sheet: Sheet = PAGE) -> Drawing:
    """Accuracy against the number of marks, axes for each module and a line for each of its settings."""
    shown = [(panel, rows) for panel in panels if len(rows := _marks(panel))]
    groups = [[own for _, own in rows.groupby("module", sort=False)] for _, rows in shown]
    columns = sheet.columns(_LEAST, max(map(len, groups)))
    lines = [-(-len(own) // columns) for own in groups]
    entries = max(_setting(row).count("\n") + 1 for of_panel in groups for own in of_panel for row in rows_of(own))
    most = max(len(own) for of_panel in groups for own in of_panel)
    heights = [(_HEIGHT + 1.3 * LINE * (entries * most + 2)) * count for count in lines]
    figure, found = parts("Recall by the number of marks", sheet, shown, heights, ("trained",))
    drawing = Drawing(
        figure,
        "Accuracy in looking up the cell with the same mark, against the number of marks, with its 95 % interval over "
        "seeds. Dotted: a guess from the histogram of the digits with marks.",
    )
    for modules, count, part in zip(groups, lines, found, strict=True):
        grid = list(part.subplots(count, columns, sharey=True, squeeze=False).flat)
        for axes, own in zip(grid, modules, strict=False):
            _lines(drawing, axes, rows_of(own))
        part.supylabel("accuracy (%)", fontsize=TEXT)
        for axes in grid[len(modules) :]:
            axes.set_axis_off()
    return drawing


def _setting(row: RecordRow) -> str:
    return wrapped(row["settings"] or "default", _ENTRY)


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
            label=_setting(row),
        )
        line.set_gid(drawing.detail(f"{label_of(row)}: {', '.join(f'{value:.0f} %' for value in values)}"))
        for place, each in zip(x, found.values(), strict=True):
            if each["low"] is not None:
                axes.vlines(place, each["low"], each["high"], color=FAINT, linewidth=0.8, zorder=1)
        axes.set_title(row["name"])
    few, *_, many = found
    marks = range(few, many + 1)
    guess = [from_histogram(2 * each - 1) for each in marks]
    axes.plot(marks, guess, color=INK, linewidth=0.6, linestyle=":", label="guess from the digits\nwith marks")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(ylim=(0, 105), xlabel="marks")
    axes.grid(which="major")
    legend_below(axes)
