"""A compact table for a paper: a line a module, a column for each chosen quantity and, if there are several, input."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ctxbench.errors import UsageError, unknown
from ctxbench.metrics import quantity
from ctxbench.metrics.base import Quantity

from .caption import convention_lines, setup, values_in
from .cells import Filled, failed_cell, heading, put_together, quantity_cell
from .published import unit_of, with_published
from .runs import RunData
from .table import Cell, Column, Footnotes, Table
from .tables import mark_best

PART = "compact"
DEFAULT = ("params", "macs", "memory_train", "latency_infer")


@dataclass(frozen=True)
class Choice:
    """What a compact table shows: quantities, modules and inputs (empty: all), title, LaTeX label, notes or not."""

    columns: Sequence[str] = ()
    modules: Sequence[str] = ()
    shapes: Sequence[str] = ()
    title: str = ""
    label: str = ""
    notes: bool = True


def compact_table(run: RunData, choice: Choice) -> Table:
    """The table of one run. UsageError for a quantity, module or input that it does not have."""
    frame = with_published(run)
    chosen = [quantity(key) for key in choice.columns or DEFAULT]
    frame = _only(frame, "module", choice.modules)
    frame = _only(frame, "shape", choice.shapes)
    shapes = list(frame["shape"].unique())
    names = [name for name in ("settings", "dtype", "memory_format", "execution", "threads", "device")
             if frame[name].nunique(dropna=False) > 1]  # fmt: skip
    rows = list(frame.groupby(["module", *names], sort=False, dropna=False))
    notes = Footnotes()
    titles = [str(group["title"].iloc[0]) or str(group["module"].iloc[0]) for _, group in rows]
    filled: list[Filled] = [(Column("module", "", "Module", "label"), [Cell(title) for title in titles])]
    for place, name in enumerate(names, 1):
        cells = [Cell("" if pd.isna(key[place]) else str(key[place])) for key, _ in rows]
        filled.append((Column(name, "", name.replace("_", " "), "label"), cells))
    units = {}
    for each in chosen:
        units[each.key] = unit_of(run, each, frame)
        for shape in shapes:
            part = frame[frame["shape"] == shape].reset_index(drop=True)
            cells = dict(zip(part["case"], mark_best(_cells(part, each, units[each.key]), part, each), strict=True))
            column = [_first(group, shape, cells) for _, group in rows]
            group_name, header = heading(each.title, units[each.key]), shape.replace("x", ", ")
            name = Column(f"{each.key} {shape}", group_name, header, each.origin, PART)
            if len(shapes) == 1:
                name = Column(each.key, "", group_name, each.origin, PART)
            filled.append((name, column))
    about = [(str(key[0]), str(group["family"].iloc[0]), str(group["status"].iloc[0])) for key, group in rows]
    caption = (f"{setup(run)}.", *convention_lines(units, values_in(frame)))
    title = choice.title or str(run.definition.get("title") or run.suite)
    columns = ["module", "shape", *names, *(each.column for each in chosen), "status"]
    return put_together(f"{run.suite}-compact", title, filled, about, caption, notes.texts, frame[columns])


def _only(frame: pd.DataFrame, column: str, wanted: Sequence[str]) -> pd.DataFrame:
    """The rows with one of these values, in the order given; all where none is given."""
    if not wanted:
        return frame
    there = list(frame[column].unique())
    for name in wanted:
        if name not in there:
            raise unknown(f"{column} of this run", name, there)
    found = pd.concat([frame[frame[column] == name] for name in wanted], ignore_index=True)
    if found.empty:
        raise UsageError("no row of this run is chosen")
    return found


def _cells(frame: pd.DataFrame, each: Quantity, unit: object) -> list[Cell]:
    return [quantity_cell(row, each, unit) for row in frame.to_dict("records")]  # type: ignore[arg-type]


def _first(group: pd.DataFrame, shape: str, cells: dict[str, Cell]) -> Cell:
    """The cell of the row of this input; its status if it failed."""
    rows = group[group["shape"] == shape]
    if rows.empty:
        return Cell()
    row = rows.iloc[0].to_dict()
    return cells[row["case"]] if row["status"] == "ok" else failed_cell(row)
