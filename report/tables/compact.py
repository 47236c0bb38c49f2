"""A compact table for a paper: a line a module, a column for each chosen quantity and, if there are several, input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.base.notes import BROKEN, WRAPPED
from ctxbench.model.conditions import CONDITIONS
from ctxbench.model.metric import Quantity, RecordRow, Unit
from ctxbench.model.metrics import quantities, quantity
from ctxbench.results.rows import is_filled
from ctxbench.table.table import Cell, Footnotes, Table, TableColumn

from ..published import numbers_with_published, unit_of, with_published
from ..run_data import RunData, marks
from .caption import convention_lines, setup, values_in
from .cells import Filled, failed_cell, heading, put_together, quantity_cell
from .suite import mark_best, with_notes, with_reason

# The rows of a table: what names one, and its records.
NamedRecords = Sequence[tuple[tuple[Any, ...], Sequence[RecordRow]]]
PART = "compact"
LABELS = ("settings", *(name for name in CONDITIONS if name != "shape"))
DEFAULT = ("params", "macs", "memory_train", "latency_infer")


@dataclass(frozen=True)
class Choice:
    """Choice of a compact table: quantities, modules and inputs (empty: all), title, LaTeX label.

    Figures show these modules and inputs, too.
    """

    columns: Sequence[str] = ()
    modules: Sequence[str] = ()
    shapes: Sequence[str] = ()
    title: str = ""
    label: str = ""


def compact_table(run: RunData, choice: Choice) -> Table:
    """The table of one run. UsageError for a quantity, module or input that it does not have."""
    run = run.only(choice.modules, choice.shapes)
    records = with_published(run)
    chosen = [quantity(key) for key in choice.columns or [key for key in DEFAULT if key in quantities()]]
    shown = [column for each in map(quantity, choice.columns) for column in (each.column, f"{each.key}_published")]
    if shown and all(row[column] is None for row in records for column in shown):
        raise UsageError(f"no row of this run has {', '.join(choice.columns)}; leave it out of --columns")
    names = [name for name in LABELS if len({row[name] for row in records}) > 1]
    found: dict[tuple[Any, ...], list[RecordRow]] = {}
    for row in records:
        found.setdefault((row["module"], *(row[name] for name in names)), []).append(row)
    rows = list(found.items())
    units, notes = {each.key: unit_of(run, each, records) for each in chosen}, Footnotes()
    filled = _labels(rows, names, notes)
    for each in chosen:
        filled += _columns(records, rows, each, units[each.key], notes)
    about = [(str(key[0]), str(group[0]["family"]), str(group[0]["status"])) for key, group in rows]
    known = {each.key: units[each.key] for each in chosen if is_filled(records, each.column)}
    caption = (f"{setup(run)}.", *convention_lines(known, values_in(records)))
    title = choice.title or str(run.definition.get("title") or run.suite)
    columns = ["module", "shape", *names, *(each.column for each in chosen), "status"]
    return put_together(
        f"{run.suite}-compact",
        title,
        filled,
        about,
        caption,
        notes.texts,
        lambda: numbers_with_published(records, columns),
    )


def _labels(rows: NamedRecords, names: Sequence[str], notes: Footnotes) -> list[Filled]:
    """Labels of a row: the module's title, with what stands beside a name as a mark or footnote; what else differs."""
    titles = []
    for _, group in rows:
        beside = dict.fromkeys(str(note) for row in group for note in row["notes"] if note.code in (BROKEN, WRAPPED))
        name = f"{group[0]['title'] or group[0]['module']}{marks(group[0]['notes'])}"
        titles.append(Cell(name, notes=tuple(map(notes.number, beside))))
    filled: list[Filled] = [(TableColumn("module", "", "Module", "label"), titles)]
    for place, name in enumerate(names, 1):
        cells = [Cell("" if key[place] is None else str(key[place])) for key, _ in rows]
        filled.append((TableColumn(name, "", name.replace("_", " "), "label"), cells))
    return filled


def _columns(
    records: Sequence[RecordRow], rows: NamedRecords, each: Quantity, unit: Unit, notes: Footnotes
) -> list[Filled]:
    filled: list[Filled] = []
    shapes = list(dict.fromkeys(str(row["shape"]) for row in records))
    title = heading(each.title, unit)
    for shape in shapes:
        part = [row for row in records if row["shape"] == shape]
        found = with_notes([quantity_cell(row, each, unit) for row in part], part, each, notes)
        found = [with_reason(cell, each, row, notes) for cell, row in zip(found, part, strict=True)]
        cells = dict(zip([str(row["case"]) for row in part], mark_best(found, part, each), strict=True))
        column = TableColumn(f"{each.key} {shape}", title, shape.replace("x", ", "), each.origin, PART)
        if len(shapes) == 1:
            column = TableColumn(each.key, "", title, each.origin, PART)
        filled.append((column, [_first(group, shape, cells) for _, group in rows]))
    return filled


def _first(group: Sequence[RecordRow], shape: str, cells: Mapping[str, Cell]) -> Cell:
    """The cell of the row of this input; its status if it failed."""
    row = next((row for row in group if row["shape"] == shape), None)
    if row is None:
        return Cell()
    return cells[row["case"]] if row["status"] == "ok" else failed_cell(row)
