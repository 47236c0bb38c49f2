"""The suite's table: published numbers beside ours in the paper's layout, with ratios, intervals and footnotes."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ctxbench import devices
from ctxbench.base.notes import BROKEN
from ctxbench.base.number import fixed, order, rough_ratio
from ctxbench.base.texts import listed
from ctxbench.model.conditions import COLUMNS, CONDITIONS
from ctxbench.model.metric import Quantity, RecordRow, Unit
from ctxbench.model.metrics import metrics, quantities, read_number
from ctxbench.model.published import Printed
from ctxbench.plugin import loaded
from ctxbench.results.rows import is_filled
from ctxbench.table.table import ROW_LIMIT, Cell, Footnotes, Origin, Table, TableColumn

from ..published import numbers_with_published, unit_of, with_published
from ..run_data import DRIFT_WARNING, RunData, drifts, heading_of, kind_of
from .caption import caption_lines
from .cells import Filled, doubts, failed_cell, heading, put_together, quantity_cell, ratio_cell


def suite_table(run: RunData) -> Table:
    """One run in the paper's layout; `data` has every row, `rows` at most ROW_LIMIT."""
    every = with_published(run)
    records, notes = every[:ROW_LIMIT], Footnotes()
    units = {key: unit_of(run, quantity, every) for key, quantity in shown_quantities(run, every).items()}
    filled = [(TableColumn("module", "", "Module", "label"), _module_cells(records, notes))]
    for name in run.differing():
        values = ["" if row[name] is None else str(row[name]) for row in records]
        filled.append((TableColumn(name, "", heading_of(name), "label"), [Cell(value) for value in values]))
    for key, unit in units.items():
        filled += _quantity_columns(run, quantities()[key], records, unit, notes)
    if any(row["status"] != "ok" for row in every):
        filled.append((TableColumn("status", "", "Status", "status"), _status_cells(records, notes)))
    about = [(str(row["module"]), str(row["family"]), str(row["status"])) for row in records]
    caption = caption_lines(run, [column for column, _ in filled], units, len(every) - len(records))
    title = _title(run)
    columns = _plain_columns(every, units)
    return put_together(
        run.suite, title, filled, about, caption, notes.texts, lambda: numbers_with_published(every, columns)
    )


def _title(run: RunData) -> str:
    """The suite's title with the input that was run; several are in the rows. What was trained has its own."""
    title = str(run.definition.get("title") or run.suite)
    shapes = list(dict.fromkeys(row["shape"] for row in run.rows))
    text = f"[{shapes[0].replace('x', ', ')}]" if len(shapes) == 1 else ""
    at = f" at {text}" if text not in title else ""
    trained = next(filter(None, (tell(run) for tell in loaded("titles"))), "")
    return f"{title}: {trained}{at and f', costs{at}'}" if trained else title + at


def shown_quantities(run: RunData, rows: Sequence[RecordRow]) -> dict[str, Quantity]:
    """The quantities that the run has numbers of, and those that were asked for and that failed rows left without.

    `rows` are the run's with what is published.
    """
    failed = any(row["status"] != "ok" for row in rows)
    asked = {
        quantity.key
        for metric in metrics().values()
        for quantity in metric.quantities
        if failed and quantity.better and metric.name in run.meta.get("metrics", ())
    }
    return {
        key: quantity
        for key, quantity in quantities().items()
        if quantity.in_suite_table or is_filled(rows, f"{key}_published")
        if key in asked or is_filled(rows, quantity.column) or _is_explained(run, quantity)
    }


def _is_explained(run: RunData, quantity: Quantity) -> bool:
    """Return whether the run says why it has no number, or that only papers have one."""
    if quantity.reason_column and any(row[quantity.reason_column] for row in run.rows):
        return True
    printed = run.published.rows.values() if run.published else ()
    return quantity.origin == "published" and any(quantity.key in row.printed for row in printed)


def _plain_columns(rows: Sequence[RecordRow], shown: Collection[str]) -> list[str]:
    """The columns of the CSV: what names a case, then each quantity published, here, ratio, interval."""
    names = ["module", "title", "family", "hparams", *COLUMNS, "status", "message"]
    names += ["processes", "others_share"] if any(quantities()[key].has_interval for key in shown) else []
    for key in shown:
        quantity = quantities()[key]
        with_paper = is_filled(rows, f"{key}_published")
        names += [f"{key}_published"] if with_paper else []
        names += [quantity.column]
        names += [f"{key}_ratio"] if with_paper and quantity.origin != "measured" else []
        if quantity.has_interval:
            details = ("low_ms", "high_ms", "samples", "stop", "spread_between", "spread_within")
            names += [quantity.detail(name) for name in details]
        names += [quantity.measured_column] if quantity.measured_column else []
    return names


def _quantity_columns(
    run: RunData, quantity: Quantity, records: Sequence[RecordRow], unit: Unit, notes: Footnotes
) -> list[Filled]:
    """The columns of one quantity: published, here, ratio, and what was measured beside a prediction."""
    key = quantity.key
    group = heading(quantity.title, unit)
    found: list[Filled] = []

    def add(name: str, header: str, origin: Origin, cells: list[Cell], short: str = "") -> None:
        found.append((TableColumn(name, group, header, origin, quantity.part, short), cells))

    if is_filled(records, f"{key}_published"):
        add(f"{key}_published", "paper", "published", published_cells(run, records, key, notes))
    if quantity.origin == "published":
        return found
    cells = with_notes(_number_cells(records, quantity, unit), records, quantity, notes)
    cells = [with_reason(cell, quantity, row, notes) for cell, row in zip(cells, records, strict=True)]
    cells = mark_best(cells, records, quantity)
    if quantity.origin == "predicted":
        add(key, "predicted", "predicted", cells, "pred.")
    else:
        add(key, "here", quantity.origin, cells)
    if is_filled(records, f"{key}_ratio"):
        add(f"{key}_ratio", "ratio", "ratio", [_ratio_cell(row[f"{key}_ratio"]) for row in records])
    if quantity.measured_column and is_filled(records, quantity.measured_column):
        kinds = sorted({kind_of(device) for device in (row["device"] for row in records) if devices.has_clock(device)})
        header = f"on {kinds[0].upper()}" if len(kinds) == 1 else "on device"
        add(f"{key}_measured", header, "measured", _number_cells(records, quantity, unit, quantity.measured_column))
    return found


def _ratio_cell(ratio: float | None) -> Cell:
    """Ours over what is published, which is rounded; empty if there is none."""
    return Cell() if ratio is None else ratio_cell(rough_ratio(ratio))


def _has_number(row: RecordRow, key: str) -> bool:
    """True if a row has the number of a quantity, which another version of ctxbench may have called otherwise."""
    quantity = quantities().get(key)
    return quantity is not None and row[quantity.column] is not None


def _module_cells(records: Sequence[RecordRow], notes: Footnotes) -> list[Cell]:
    """Title (key where there is little room), with the notes that belong to no number of the row."""
    cells = []
    for row in records:
        own = [each for each in row["notes"] if not _has_number(row, each.about)]
        numbers = tuple(notes.number(str(each)) for each in own)
        module = str(row["module"])
        cells.append(Cell(str(row["title"] or module), notes=numbers, detail=module, short=module))
    return cells


def _status_cells(records: Sequence[RecordRow], notes: Footnotes) -> list[Cell]:
    return [
        Cell("ok") if row["status"] == "ok" else failed_cell(row, (notes.number(f"{row['status']}: {row['message']}"),))
        for row in records
    ]


def published_cells(run: RunData, records: Sequence[RecordRow], key: str, notes: Footnotes) -> list[Cell]:
    """Cells of the paper's figures, with the sentences that explain them."""
    cells = []
    for row in records:
        text, name = row[f"{key}_published"], row["published_row"]
        if text is None or run.published is None:
            cells.append(Cell())
            continue
        reasons = filter(None, (run.published.rows[name].notes.get(key), run.published.notes.get(key)))
        numbers = tuple(map(notes.number, reasons))
        cells.append(Cell(str(text), float(Printed.parse(text).value), notes=numbers, detail="as printed"))
    return cells


def _number_cells(records: Sequence[RecordRow], quantity: Quantity, unit: Unit, column: str = "") -> list[Cell]:
    """Our numbers; a count has as many decimals as the published number of its row."""
    cells = []
    for row in records:
        text = row[f"{quantity.key}_published"]
        cell = quantity_cell(row, quantity, unit, column)
        decimals = Printed.parse(text).decimals if text is not None and quantity.origin != "measured" else None
        cells.append(_as_printed(cell, decimals))
    return cells


def _as_printed(cell: Cell, decimals: int | None) -> Cell:
    """The cell with this many decimals, unless they are too few to show its number."""
    if cell.value is None or decimals is None or 0 < abs(cell.value) < 10**-decimals:
        return cell
    return replace(cell, text=fixed(cell.value, decimals))


def with_notes(cells: Sequence[Cell], records: Sequence[RecordRow], quantity: Quantity, notes: Footnotes) -> list[Cell]:
    """The cells with footnotes for what qualifies their numbers; one without a number stays as it is."""
    return [
        cell if cell.value is None else replace(cell, notes=tuple(sorted(map(notes.number, _sentences(quantity, row)))))
        for cell, row in zip(cells, records, strict=True)
    ]


def with_reason(cell: Cell, quantity: Quantity, row: RecordRow, notes: Footnotes) -> Cell:
    """A dash with a footnote where the quantity does not apply to the row, or derives from one that is not there."""
    if cell.text:
        return cell
    reason = row[quantity.reason_column] if quantity.reason_column else None
    sentence = f"Not applicable: {reason}." if reason else _lacking(quantity, row)
    return Cell("-", notes=(notes.number(sentence),), detail=sentence) if sentence else cell


def _lacking(quantity: Quantity, row: RecordRow) -> str:
    """Missing columns of a row that a quantity derives from, as a sentence; empty if none is missing."""
    needs = (quantities()[quantity.derive.source].column, *quantity.derive.needs) if quantity.derive else ()
    missing = [name for name in needs if row[name] is None]
    return f"Needs {listed(missing)}, which {'are' if missing[1:] else 'is'} missing here." if missing else ""


def _sentences(quantity: Quantity, row: RecordRow) -> list[str]:
    """Notes on our own number: its metric's and, for a time, its uncertainty."""
    found = [each.shared for each in row["notes"] if each.about == quantity.key]
    found += [each.shared for each in quantity.notes(row)]
    value = read_number(row, quantity)
    if value is None or not quantity.has_interval:
        return found
    found += doubts(value)
    if drifts(row, quantity):
        found.append(f"Drift: the medians of the measurement's halves differ by more than {DRIFT_WARNING:.0%}.")
    return found


def mark_best(cells: list[Cell], records: Sequence[RecordRow], quantity: Quantity) -> list[Cell]:
    """Bold for the best among the rows that ran under the same conditions, and for those that tie with it.

    Times that no verdict rests on are left out, what derives from times, and modules that do not meet the contract.
    Counts tie where they look the same.
    """
    best: set[int] = set()
    if quantity.better is None or quantity.derive:
        return cells
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(records):
        if row["status"] == "ok":
            groups.setdefault(tuple(row[name] for name in CONDITIONS), []).append(i)
    for group in groups.values():
        rows = {i: read_number(records[i], quantity) for i in group}
        broken = {i for i in rows if any(each.code == BROKEN for each in records[i]["notes"])}
        values = {
            i: value for i, value in rows.items() if value and not value.reason_not_comparable and i not in broken
        }
        if len(values) < 2:
            continue
        choose = min if quantity.better == "smaller" else max
        first = choose(values, key=lambda i: values[i].value)
        if any(value and value.lacks and value.value < values[first].value for value in rows.values()):
            continue  # what is not counted decides which one has the fewest
        if quantity.has_interval:
            best.update(i for i, value in values.items() if order(value, values[first]) == 0)
        else:
            best.update(i for i in values if cells[i].text == cells[first].text)
    return [replace(cell, best=i in best) for i, cell in enumerate(cells)]
