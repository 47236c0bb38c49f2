"""Figures of recall: what each module reached on each task, and that against its cost."""

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ctxbench.base.number import significant
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantities, quantity
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.labels import freeze_layout, place_labels
from ctxbench.report.figures.layout import PAGE, FigureSize, names_of, parts, without_family, wrapped
from ctxbench.report.figures.points import front_of
from ctxbench.report.figures.style import FAINT, INK, PALE, SMALL, TEXT, Drawing, looks
from ctxbench.report.figures.ticks import log_axis
from ctxbench.report.panels import Panel, label_of, origin_of
from ctxbench.results.rows import is_filled
from ctxbench_science.recall.metric import KINDS, accuracy_of, first_of

# A point, its place on both axes.
Place = tuple[float, float]
# Percent: ten digits.
CHANCE = 10
# What ability is drawn against, where a run has it.
COSTS = ("latency_infer", "macs", "memory_train")
# Inches: the names of all blocks on a page; the least wide axes, and how high they are with what is around them, in two
# lines or in more; characters of a line of a name.
_HIGHEST, _LEAST, _HEIGHTS, _NAME = 8.6, 1.6, (3.0, 2.2), 18
# Of the points of a module with several settings, in turn.
_FILLS = ("full", "none", "left", "top")


def _rows(panel: Panel) -> list[RecordRow]:
    """The rows that were trained, the most able first: on the tasks in turn."""
    columns = [f"recall_{kind}" for kind in _kinds(panel.rows)]
    trained = [row for row in panel.rows if any(row[column] is not None for column in columns)]
    return sorted(
        trained, key=lambda row: [-1.0 if row[column] is None else row[column] for column in columns], reverse=True
    )


def _kinds(rows: Sequence[RecordRow]) -> list[str]:
    """The kinds of task that any row was trained on."""
    return [kind for kind in KINDS if is_filled(rows, f"recall_{kind}")]


def recall_by_task(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """A column for each task: what each seed reached, their mean or median, and a line at chance."""
    shown = [(panel, without_family(rows)) for panel in panels if len(rows := _rows(panel)) > 1]
    names = [names_of(rows, _HIGHEST) for _, rows in shown]
    heights = [0.9 * own.height + 0.7 for own in names]
    figure, found = parts("Recall: which context a module brings", sheet, shown, heights, ("trained",))
    drawing = Drawing(
        figure,
        "Pale: each seed. Of segment the mean IoU, mean over seeds; elsewhere the accuracy, median over seeds. Dotted: "
        "chance.",
    )
    for (_, rows), part, own in zip(shown, found, names, strict=True):
        kinds = _kinds(rows)
        all_axes = part.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for kind, axes in zip(kinds, all_axes, strict=True):
            _task(drawing, axes, rows, kind, own.middles)
            axes.set(ylim=(own.height, 0), xlim=(0, 100), title=kind)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
        all_axes[0].set_yticks(own.middles, own.texts)
        part.supxlabel("mean IoU of segment, accuracy elsewhere (%)", fontsize=TEXT)
    return drawing


def _task(drawing: Drawing, axes: Axes, rows: Sequence[RecordRow], kind: str, places: Sequence[float]) -> None:
    appearance = looks(row["module"] for row in rows)
    axes.axvline(CHANCE, color=INK, linewidth=0.6, linestyle=":")
    for row, place in zip(rows, places, strict=True):
        if row[f"recall_{kind}"] is None:
            axes.text(2, place, "none", va="center", fontsize=SMALL, color=FAINT)
            continue
        (_, found), look = first_of(kind, row["recall_curve"]), appearance[row["module"]]
        own = found["accuracies"]
        axes.plot(own, [place] * len(own), "o", color=look.colour, alpha=PALE, markersize=3, clip_on=False, zorder=1)
        (point,) = axes.plot(found["accuracy"], place, marker=look.marker, color=look.colour, clip_on=False, zorder=2)
        each = ", ".join(f"{value:.0f}" for value in sorted(own))
        point.set_gid(drawing.detail(f"{label_of(row)}, {kind}: {found['accuracy']:.0f} % of {each}"))


def _with_costs(panel: Panel) -> list[RecordRow]:
    """The rows with all costs that any trained row has; none without a cost."""
    rows = _rows(panel)
    columns = [quantity(key).column for key in _costs(rows)]
    return [row for row in rows if columns and None not in [row[column] for column in columns]]


def _costs(rows: Sequence[RecordRow]) -> list[str]:
    return [key for key in COSTS if key in quantities() and is_filled(rows, quantity(key).column)]


def ability(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Accuracy on each task against the time and the memory of a block, with the front of what nothing beats."""
    shown = [(panel, rows) for panel in panels if len(rows := _with_costs(panel)) > 1]
    every = [row for _, rows in shown for row in rows]
    kinds, costs = _kinds(every), _costs(every)
    columns = len(kinds) if sheet.columns(_LEAST, len(kinds)) == len(kinds) else len(costs)
    cells = [(kind, key) for key in costs for kind in kinds]
    cells = cells if columns == len(kinds) else sorted(cells, key=lambda cell: kinds.index(cell[0]))
    lines = len(cells) // columns
    heights = [_HEIGHTS[lines > 2] * lines] * len(shown)
    coloured = {row["case"] for _, rows in shown for kind, key in cells for row, _ in _front(rows, kind, key)}
    legend = [
        (panel, [row if row["case"] in coloured else {**row, "family": ""} for row in rows]) for panel, rows in shown
    ]
    figure, found = parts("Ability against cost", sheet, legend, heights, ("trained", "measured"))
    drawing = Drawing(
        figure,
        "What was reached on small tasks, against costs; named, on the dashed line: nothing is cheaper and better.",
    )
    named: list[tuple[Axes, list[tuple[RecordRow, Place]], list[Place]]] = []
    for (_, rows), part in zip(shown, found, strict=True):
        grid = part.subplots(lines, columns, sharey=True)
        for (kind, key), axes in zip(cells, grid.flat, strict=True):
            named.append((axes, *_against(drawing, axes, rows, kind, key)))
    freeze_layout(figure)
    for axes, front, others in named:
        if front:
            x, y = zip(*(place for _, place in front), strict=True)
            texts = [wrapped(label_of(row).partition(" [")[0], _NAME) for row, _ in front]
            place_labels(axes, x, y, texts, [3.0] * len(front), others)
    return drawing


def _against(
    drawing: Drawing, axes: Axes, rows: Sequence[RecordRow], kind: str, key: str
) -> tuple[list[tuple[RecordRow, Place]], list[Place]]:
    """Draw the points and the front, and return the front's rows with their points, and the other points."""
    each, appearance = quantity(key), looks(row["module"] for row in rows)
    before: Counter[str] = Counter()
    drawn: dict[str, Line2D] = {}
    for row in sorted(rows, key=lambda row: (row["family"], row["module"])):
        x, y = row[each.column] / each.unit.factor, row[f"recall_{kind}"]
        look, fill = appearance[row["module"]], _FILLS[before[row["module"]] % len(_FILLS)]
        before[row["module"]] += 1
        place = ([], []) if y is None else ([x], [y])
        (point,) = axes.plot(*place, look.marker, color=FAINT, fillstyle=fill, zorder=2)
        if y is not None:
            found = accuracy_of(*first_of(kind, row["recall_curve"]))
            if found.has_interval:
                axes.vlines(x, *found.ends, color=FAINT, alpha=PALE, linewidth=0.7)
            text = f"{label_of(row)}, {kind}: {y:.0f} %, {significant(x)} {each.unit.symbol}"
            point.set_gid(drawing.detail(text))
            drawn[row["case"]] = point
    front = _front(rows, kind, key)
    x_front, y_front = [x for _, (x, _) in front], [y for _, (_, y) in front]
    axes.step(x_front, y_front, where="post", color=FAINT, linewidth=1.1, linestyle="--", zorder=1)
    axes.axhline(CHANCE, color=INK, linewidth=0.6, linestyle=":")
    axes.margins(x=0.12)
    log_axis(axes, "x")
    axes.set(ylim=(0, 105), title=kind, ylabel="IoU or accuracy (%)")
    axes.label_outer()
    axes.set_xlabel(f"{each.noun}, {each.unit.symbol}\n({origin_of(each, rows).partition(',')[0]})")
    axes.tick_params(labelbottom=True)
    axes.grid(which="major")
    for row, _ in front:
        drawn[row["case"]].set(color=appearance[row["module"]].colour, zorder=3)
    named = {row["case"] for row, _ in front}
    return front, [place for row, place in _points(rows, kind, key) if row["case"] not in named]


def _points(rows: Sequence[RecordRow], kind: str, key: str) -> list[tuple[RecordRow, Place]]:
    """The rows that were trained on a kind of task, each with its cost and what it reached."""
    each, column = quantity(key), f"recall_{kind}"
    return [(row, (row[each.column] / each.unit.factor, row[column])) for row in rows if row[column] is not None]


def _front(rows: Sequence[RecordRow], kind: str, key: str) -> list[tuple[RecordRow, Place]]:
    """Find the points well above chance of which none is cheaper and better."""
    able = [point for point in _points(rows, kind, key) if point[1][1] > 2 * CHANCE]
    return [able[place] for place in front_of([(x, -y) for _, (x, y) in able])]


FIGURES = (
    FigureKind("recall", "Recall by task", "two rows with the metric recall",
         lambda panel: len(_rows(panel)) > 1, recall_by_task, drawn="always", order=100),
    FigureKind("ability", "Ability against cost", "two rows with the metric recall, and what they cost",
         lambda panel: len(_with_costs(panel)) > 1, ability, drawn="always", order=110),
)  # fmt: skip
