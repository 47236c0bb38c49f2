"""Crossovers: the cost of one module over another's against n = H W on log axes, and where it falls below 1."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.plugins.crossover.crossover import CostsAtSize, Crossover, ratio_between
from ctxbench.plugins.crossover.table import Pairing, costs_of, crossover_of, differing, pairings, pairs_of, text_of
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.layout import CHARACTER, KEY, LINE, PAGE, FigureSize, parts, without_family
from ctxbench.report.figures.style import DASHES, FAINT, INK, MARKERS, SMALL, Drawing, Look, looks
from ctxbench.report.figures.ticks import log_axis
from ctxbench.report.panels import Panel, origin_of

MOST_PAIRINGS = 12
# Axes beside each other, and their inches: the least wide, and how high without the legend.
_COLUMNS, _LEAST, _HEIGHT = 3, 2.2, 2.1
# Inches between two bars below the lines; a crossover right of this share of the width has its text on the left.
_BAR, _RIGHT = 0.13, 0.5
# Points of a band between two sizes.
_STEPS = 9


def _pairings(panel: Panel) -> list[Pairing]:
    return pairings(panel.rows, pairs_of(panel.run))[:MOST_PAIRINGS]


def crossovers(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """A panel for each cost: a line for each pair, the band of its interval, and the crossover with its interval."""
    shown = {panel: found for panel in panels if costs_of(found := _pairings(panel))}
    costs = costs_of([each for found in shown.values() for each in found])
    columns = sheet.columns(_LEAST, min(_COLUMNS, len(costs)))
    lines = -(-len(costs) // columns)
    heights = [
        (_HEIGHT + _BAR * len(found)) * lines + LINE * -(-len(found) // _beside(found, sheet))
        for found in shown.values()
    ]
    drawn = [(panel, _rows(panel, found)) for panel, found in shown.items()]
    figure, placed = parts("Where one module becomes cheaper than another", sheet, drawn, heights)
    drawing = Drawing(
        figure,
        "Cost of the first module over that of the second, against n = H x W; below 1 the first is cheaper. Below "
        "the lines: the n above which it is, between the two sizes that are known if it is exact, else with its 95 % "
        "interval as a thick bar; bands: 95 % intervals of the ratio over rounds.",
    )
    for (panel, found), part in zip(shown.items(), placed, strict=True):
        cells = list(part.subplots(lines, columns, squeeze=False).flat)
        for cost, axes in zip(costs, cells, strict=False):
            axes.set_title(cost.title + (f" ({origin_of(cost, panel.rows)})" if cost.origin == "predicted" else ""))
            if any(each.sizes(cost) for each in found):
                _crossover_axes(drawing, axes, found, cost)
            else:
                axes.set_axis_off()
                axes.text(0.5, 0.5, "nothing to compare: see the table", ha="center", color=FAINT)
        for axes in cells[len(costs) :]:
            axes.set_axis_off()
        handles, labels = next(axes for axes in cells if axes.lines).get_legend_handles_labels()
        part.legend(handles, labels, loc="outside lower left", ncols=_beside(found, sheet), borderpad=0)
    return drawing


def _rows(panel: Panel, found: Sequence[Pairing]) -> list[RecordRow]:
    """The rows of the panel that are compared; without families, because the legends name what has which colour."""
    cases = {row["case"] for each in found for _, *own in each.rows for row in own}
    records: list[RecordRow] = without_family([row for row in panel.rows if row["case"] in cases])
    return records


def _name(pairing: Pairing, found: Sequence[Pairing]) -> str:
    """The pair, with the conditions in which the pairs differ."""
    differences = [f"{name} {pairing.conditions[name]}" for name in differing(found)]
    return ", ".join([f"{pairing.first} / {pairing.second}", *differences])


def _beside(found: Sequence[Pairing], sheet: FigureSize) -> int:
    """Number of columns of the legend."""
    return max(1, int(sheet.width / (CHARACTER * max(len(_name(each, found)) for each in found) + KEY)))


def _crossover_axes(drawing: Drawing, axes: Axes, found: Sequence[Pairing], cost: Quantity) -> None:
    appearance = looks(str(row["module"]) for each in found for row in each.rows[0][1:])
    conditions = list(dict.fromkeys(tuple(each.conditions.values()) for each in found))
    for place, each in enumerate(found):
        sizes, answer = each.sizes(cost), crossover_of(each, cost)
        colour, marker = appearance[str(each.rows[0][1]["module"])].colour, MARKERS[place % len(MARKERS)]
        label, text = _name(each, found), text_of(answer, sizes)
        style = DASHES[conditions.index(tuple(each.conditions.values())) % len(DASHES)]
        ratios = [ratio_between(size, size, 0.0).value for size in sizes]
        (line,) = axes.plot([size.n for size in sizes], ratios, style, marker=marker, color=colour, label=label)
        line.set_gid(drawing.detail(f"{label}: {text}"))
        _band(axes, sizes, colour)
        if answer:
            _mark(axes, answer, sizes, colour, marker)
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set(xlabel="positions n = H x W", ylabel="first / second")
    log_axis(axes, "x")
    log_axis(axes, "y")
    low, high = axes.get_ylim()
    axes.set_ylim(low * (low / high) ** (_BAR * (len(found) + 1) / _HEIGHT), high)
    axes.grid(which="major")
    for place, each in enumerate(found):
        look = Look(appearance[str(each.rows[0][1]["module"])].colour, MARKERS[place % len(MARKERS)])
        _bar(axes, each, cost, look, place)


def _band(axes: Axes, sizes: Sequence[CostsAtSize], colour: str) -> None:
    """The interval of the ratio at the sizes and between them, where there is one."""
    for lower, upper in pairwise(sizes):
        shares = np.linspace(0, 1, _STEPS)
        ratios = [ratio_between(lower, upper, share) for share in shares]
        n = lower.n * (upper.n / lower.n) ** shares
        low, high = [each.low for each in ratios], [each.high for each in ratios]
        if not math.isnan(low[0]):
            axes.fill_between(n, low, high, color=colour, alpha=0.25, linewidth=0)


def _mark(axes: Axes, found: Crossover, sizes: Sequence[CostsAtSize], colour: str, marker: str) -> None:
    """The crossover where the ratio is 1, if it is at a size."""
    if 0 < found.n.value < math.inf:
        axes.plot(found.n.value, 1, marker=marker, color=colour, markeredgecolor=INK, markersize=6, zorder=4)


def _bar(axes: Axes, pairing: Pairing, cost: Quantity, look: Look, place: int) -> None:
    """Below the lines the crossover in words, beside a bar of its interval up to the ends of the sizes."""
    sizes, found = pairing.sizes(cost), crossover_of(pairing, cost)
    if not found:
        return
    n, first, last = found.n, sizes[0].n, sizes[-1].n
    height, across = _BAR * (place + 0.7) / (_HEIGHT + _BAR * (place + 1)), axes.get_xaxis_transform()
    ends = [min(max(end, first), last) for end in (n.low, n.high)] if n.value > 0 else [first, first]
    if not 0 < n.value < math.inf:
        shape: dict[str, Any] = {"marker": look.marker, "markersize": 3.5}
    else:
        shape = {"linewidth": 3.0} if cost.has_interval else {"linewidth": 0.9, "marker": "|"}
    axes.plot(ends, [height, height], color=look.colour, transform=across, zorder=4, **shape)
    on_left = math.log(ends[1] / first) > _RIGHT * math.log(last / first)
    axes.annotate(
        text_of(found, sizes), (ends[0] if on_left else ends[1], height), (-5 if on_left else 5, 0), xycoords=across,
        textcoords="offset points", ha="right" if on_left else "left", va="center", fontsize=SMALL, color=INK,
    )  # fmt: skip


FIGURES = (
    FigureKind("crossover", "Crossovers", "two or more sizes of both modules of a pair, and --crossover FIRST:SECOND",
         lambda panel: costs_of(_pairings(panel)), crossovers, order=50),
)  # fmt: skip
