"""The tables of a curve: for each quantity a row a line, a column for each x, and what was fitted."""

from collections.abc import Sequence

from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.suite_file import Figure
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import Cell, Table, TableColumn

from ..curves import Fit, Series, drawn_of, fit_of, fit_title, is_numeric
from ..panels import Panel, origin_of
from .caption import convention_lines, setup, values_in
from .cells import Filled, heading, put_together, quantity_cell

# More columns than this do not fit a page: the fit alone is shown, and the numbers are in the run's own table.
MOST_COLUMNS = 14


def curve_tables(panels: Sequence[Panel], figure: Figure) -> list[Table]:
    """A table for each quantity and panel of a figure that has lines."""
    return [
        _table(panel, figure, each, lines, f"-{number}" if len(panels) > 1 else "")
        for number, panel in enumerate(panels, 1)
        for each, (lines,) in drawn_of([panel], figure)
    ]


def _table(panel: Panel, figure: Figure, each: Quantity, lines: Sequence[Series], suffix: str) -> Table:
    points = list(dict.fromkeys(x for line in lines for x in line.x))
    points = sorted(points) if is_numeric(points) else points
    filled: list[Filled] = [
        (TableColumn("module", "", "Module", "label"), [Cell(line.title, short=line.module) for line in lines]),
        (TableColumn("settings", "", "Settings", "label"), [Cell(line.settings) for line in lines]),
        (TableColumn("shape", "", "Input", "label"), [Cell(_shape(line)) for line in lines]),
    ]
    filled = [column for column in filled if any(cell.text for cell in column[1])]
    rows = [dict(zip(line.x, line.rows, strict=True)) for line in lines]
    for x in points if len(points) <= MOST_COLUMNS else ():
        column = TableColumn(str(x), figure.x, str(x), each.origin, "curve")
        filled.append((column, [_cell(found.get(x), each) for found in rows]))
    if figure.fit:
        cells = [_fit_cell(fit_of(line, figure)) for line in lines]
        filled.append((TableColumn("fit", "", fit_title(figure), "ratio", "curve"), cells))
    origin = f", {origin_of(each, panel.rows)}" if each.origin in ("predicted", "published") else ""
    title = f"{figure.title}: {heading(each.title, each.unit)}{origin}"
    caption = (f"{setup(panel.run)}.", *convention_lines({each.key: each.unit}, values_in(panel.rows)))
    about = [(line.module, str(line.rows[0]["family"]), _status(line)) for line in lines]
    name = f"{panel.run.suite}-{figure.name}-{each.key}{suffix}"
    return put_together(name, title, filled, about, caption, (), lambda: _plain(lines, each))


def _shape(line: Series) -> str:
    """The input, where it is the same along the line."""
    shapes = {row["shape"] for row in line.rows}
    return str(*shapes) if len(shapes) == 1 else ""


def _cell(row: RecordRow | None, each: Quantity) -> Cell:
    if row is not None and each.origin == "published":
        text = row[f"{each.key}_published"]
        return Cell(text or "")
    return quantity_cell(row, each, each.unit)


def _fit_cell(fit: Fit | str) -> Cell:
    return Cell(fit.text, fit.line.slope.value) if isinstance(fit, Fit) else Cell(fit)


def _status(line: Series) -> str:
    return next((str(row["status"]) for row in line.rows if row["status"] != "ok"), "ok")


def _plain(lines: Sequence[Series], each: Quantity) -> Numbers:
    """The numbers behind the table, for CSV, in units of one."""
    return Numbers.of_rows(
        [
            {"module": line.module, "settings": line.settings, "shape": row["shape"], "x": x,
             each.key: float(y) * each.unit.factor, "status": row["status"]}
            for line in lines
            for x, y, row in zip(line.x, line.y, line.rows, strict=True)
        ]
    )  # fmt: skip
