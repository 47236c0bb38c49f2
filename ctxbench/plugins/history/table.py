"""A history as tables and sentences, and as a figure."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from ctxbench.base import disk
from ctxbench.base.texts import one_line
from ctxbench.model.metrics import quantity
from ctxbench.plugins.history.costs import CostSeries, History
from ctxbench.report.figures.style import plain
from ctxbench.report.tables.cells import heading, text_of
from ctxbench.table.table import Cell, Origin, Table, plain_table

# Inches.
FIGURE_SIZE = (9.0, 4.0)


def history_tables(history: History) -> Iterator[Table]:
    """A table for each case: a row a commit, the oldest first; a number that changed there is marked."""
    changed = {(step.series.case, step.series.quantity, step.index) for step in history.steps()}
    for case in dict.fromkeys(series.case for series in history.series):
        own = [series for series in history.series if series.case == case]
        rows: list[list[str | Cell]] = []
        for index, commit in enumerate(history.commits):
            cells = [_cell(series, index, (case, series.quantity, index) in changed) for series in own]
            if any(cell.text for cell in cells):
                rows.append([commit.short, commit.day, *cells, one_line(commit.subject)])
        headings: dict[str, Origin] = {"commit": "label", "day": "label"}
        headings |= {
            heading(quantity(series.quantity).title, quantity(series.quantity).unit): "counted" for series in own
        }
        yield plain_table({**headings, "message": "text"}, rows, case)


def sentences(history: History) -> list[str]:
    """The commit of each step, then what is not there."""
    found: dict[tuple[int, str], list[str]] = {}
    for step in history.steps():
        name = quantity(step.series.quantity).title
        percent = replace(step.ratio.map_monotonic(lambda ratio: 100 * (ratio - 1)), is_ratio=False)
        found.setdefault((step.index, step.series.case), []).append(f"{name} {percent.text(digits=2, sign='+')} %")
    lines = []
    for (index, case), parts in found.items():
        commit, changes = history.commits[index], ", ".join(parts)
        about = f"{commit.short} ({commit.day}, {one_line(commit.subject)})"
        lines.append(f"{about}: {case}, over the commit before: {changes}")
    return [*(lines or ["No step: no cost changed at these commits."]), *map(one_line, history.notes)]


def plot(history: History, path: Path) -> None:
    """Draw each series over its first number, a mark a commit; the suffix of `path` is the format.

    UsageError if the file cannot be written.
    """
    with plain():
        figure = Figure(figsize=FIGURE_SIZE, layout="constrained")
        axes = figure.add_subplot()
        for series in history.series:
            first = series.points[0].number.value or 1.0
            at = [point.index for point in series.points]
            numbers = [point.number for point in series.points]
            values = [number.value / first for number in numbers]
            label = one_line(f"{series.case}: {quantity(series.quantity).title}")
            line = axes.plot(at, values, drawstyle="steps-post", marker="o", markersize=3, label=label)[0]
            for place, number in zip(at, numbers, strict=True):
                if number.has_interval:
                    axes.vlines(place, number.low / first, number.high / first, color=line.get_color(), linewidth=1)
        for index in {step.index for step in history.steps()}:
            axes.axvline(index, color="#888888", linestyle=":", linewidth=1, zorder=0)
        shorts = [commit.short for commit in history.commits]
        axes.set_xticks(range(len(shorts)), shorts, rotation=90, fontsize="small")
        axes.set(ylabel="over the first commit")
        axes.legend(fontsize="small")
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:])
    disk.write(path, drawn.getvalue(), is_named=True)


def _cell(series: CostSeries, index: int, is_step: bool) -> Cell:
    """The last number of a series at a commit; empty if it has none there."""
    numbers = [point.number for point in series.points if point.index == index]
    if not numbers:
        return Cell()
    each = quantity(series.quantity)
    return Cell(text_of(numbers[-1], each, each.unit, digits=4), numbers[-1].value, best=is_step)
