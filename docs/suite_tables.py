"""The tables of a suite's run as a page shows them: few rows, short lists, and one caption.

`ctxbench report` of the run prints the same tables whole, and its records.csv has every row.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from lists import ROOT, part_of

from ctxbench.model.metric import Quantity
from ctxbench.model.suite_file import Figure
from ctxbench.plugins.claims.table import claim_table
from ctxbench.report.curves import drawn_of, figures_of, fit_title
from ctxbench.report.panels import Panel, panels_of
from ctxbench.report.run_data import open_run
from ctxbench.report.tables.cells import heading
from ctxbench.report.tables.curve import curve_tables
from ctxbench.results.claims import ClaimVerdict
from ctxbench.table.markdown import escape, render_markdown
from ctxbench.table.table import Cell, ConventionLine, Row, Table, TableColumn

MOST_ROWS = 10
# Of each list of modules in what was found, so many are named; of a longer list than the second number none.
MOST_NAMED, MOST_LISTED = 2, 5
# What is said of a finding that has no claim.
NO_CLAIM = "no claim"
# What stands behind a figure's name for a table of its fits.
FITS = "fits"
EXACT = ("counted", "predicted")


def claims(folder: str, *, measured: bool = True) -> str:
    """The claims of the run's suite, a line each, with verdict, criterion and what was found.

    Those without a verdict only if `measured`.
    """
    table = claim_table(open_run(ROOT / folder))
    if table is None:
        raise SystemExit(f"the suite of {folder} has no claims")
    part = part_of(ROOT / folder)
    lines, above = [f"For {part} of the suite:\n"] * bool(part), ""
    for claim, verdict, criterion, found in ([cell.text for cell in row.cells] for row in table.rows):
        if not measured and verdict == ClaimVerdict.MEASURED:
            continue
        same = "as above" if criterion == above else escape(criterion)
        above = criterion
        judged = verdict.replace(f" ({NO_CLAIM})", "")
        lines.append(f"- **{escape(claim)}: {judged}.** Criterion: {same}. Found: {escape(short_found(found))}.")
    return "\n".join([*lines, "", "<br>\n".join(map(escape, table.caption))])


def short_found(text: str) -> str:
    """A finding with the first modules of each list: `slower: 5 of 58 (apc 0.86, apnb 0.83 and 3 more)`.

    A list of more than MOST_LISTED is left out: `slower: 9 of 58`.
    """
    return "; ".join(map(_short_list, text.split("; ")))


def _short_list(text: str) -> str:
    items = re.split(r", (?=[a-z])", text)
    if len(items) <= MOST_NAMED + 1:
        return text
    if len(items) > MOST_LISTED and text.endswith(")") and text.count("(") == text.count(")"):
        return text.partition(" (")[0]
    kept = ", ".join(items[:MOST_NAMED])
    opened = kept.count("(") - kept.count(")") - text.count("(") + text.count(")")
    return f"{kept} and {len(items) - MOST_NAMED} more{')' * opened}"


@cache
def _panel(folder: str) -> Panel:
    (panel,) = panels_of([open_run(ROOT / folder)])
    return panel


def figure_block(folder: str, name: str, which: str = "") -> str:
    """Tables of a figure: of all lines, of the modules and quantities that `which` names, or of its fits."""
    panel = _panel(folder)
    (figure,) = (each for each in figures_of(panel) if each.name == name)
    quantities = [each for each, _ in drawn_of([panel], figure)]
    tables = list(zip(quantities, curve_tables([panel], figure), strict=True))
    names = [*filter(None, which.split(","))]
    fits = FITS in names
    chosen = _chosen(tables, [name for name in names if name != FITS])
    shown = [fit_table(figure, chosen)] if fits else [table for _, table in chosen]
    most = max(len(table.rows) for table in shown)
    if not fits and most > MOST_ROWS:
        raise SystemExit(f"the block {folder} {name} {which} has {most} rows: name modules of at most {MOST_ROWS}")
    caption = dict.fromkeys(_first_clause(line) for table in shown for line in table.caption)
    parts = [render_markdown(replace(_short(table), caption=())) for table in shown]
    return "\n".join([*parts, "<br>\n".join(map(escape, caption))])


def _chosen(tables: Sequence[tuple[Quantity, Table]], names: Collection[str]) -> list[tuple[Quantity, Table]]:
    """Tables of the quantities among these names with the rows of the modules among them; of all if none is named."""
    keys = {each.key for each, _ in tables}
    modules = {*names} - keys
    known = {row.module for _, table in tables for row in table.rows}
    if modules - known:
        raise SystemExit(f"no module or quantity of this figure: {', '.join(sorted(modules - known))}")
    return [
        (each, replace(table, rows=tuple(row for row in table.rows if not modules or row.module in modules)))
        for each, table in tables
        if each.key in names or not keys & {*names}
    ]


def fit_table(figure: Figure, tables: Sequence[tuple[Quantity, Table]]) -> Table:
    """A row a line of the figure, a column a quantity: what was fitted to it.

    Counts and predictions have no statistical error, so their fits have no interval here. Lines with equal fits share a
    row.
    """
    first = tables[0][1]
    named = first.labels()

    def names(row: Row) -> tuple[str, ...]:
        return tuple(row.cells[i].text for i in named)

    columns, cells = [], []
    for each, table in tables:
        title = heading(each.title, each.unit) if figure.scale == "linear" else each.title
        columns.append(TableColumn(each.key, "", title, "ratio", "fits"))
        exact = each.origin in EXACT
        texts = {names(row): row.cells[-1].text for row in table.rows}
        cells.append({label: text.partition(" [")[0] if exact else text for label, text in texts.items()})
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in first.rows:
        alike.setdefault((*names(row)[1:], *(own.get(names(row), "") for own in cells)), []).append(row)
    rows = [
        replace(own[0], cells=(Cell(", ".join(row.cells[0].text for row in own)), *map(Cell, texts)))
        for texts, own in alike.items()
    ]
    fitted = fit_title(figure)
    if all(each.origin in EXACT for each, _ in tables):
        fitted = fitted.partition(" [")[0]
    caption = tuple(line for _, table in tables for line in table.caption)
    return replace(
        first,
        title=f"{figure.title}: {fitted}",
        columns=(*first.columns[: len(named)], *columns),
        rows=tuple(rows),
        caption=caption,
    )


def _short(table: Table) -> Table:
    """The table with labels that all rows share in its title, without those that no row needs to be told apart.

    What all columns are grouped by stands in the title, too.
    """
    others = table.labels()[1:]
    shared = [i for i in others if len({row.cells[i].text for row in table.rows}) == 1]
    alone = len({row.module for row in table.rows}) == len(table.rows)
    found = without(table, [table.columns[i].key for i in (others if alone else shared)])
    groups = list(dict.fromkeys(column.group for column in found.columns if column.group))
    by = [f"columns: {groups[0]}"] if len(groups) == 1 and f"by {groups[0]}" not in table.title else []
    return replace(
        found,
        title=", ".join([table.title, *filter(None, (table.rows[0].cells[i].text for i in shared)), *by]),
        columns=tuple(replace(column, group="" if len(groups) == 1 else column.group) for column in found.columns),
    )


def short_caption(table: Table) -> Table:
    """The table with the first clauses of the conventions of what it shows."""
    shown = " ".join(column.name for column in table.columns)
    lines = [line for line in table.caption if not isinstance(line, ConventionLine) or line.partition(":")[0] in shown]
    return replace(table, caption=tuple(map(_first_clause, lines)))


def without(table: Table, keys: Collection[str]) -> Table:
    """The table without the columns of these keys."""
    kept = [i for i, column in enumerate(table.columns) if column.key not in keys]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(replace(row, cells=tuple(row.cells[i] for i in kept)) for row in table.rows),
    )


def _first_clause(line: str) -> str:
    """A line of a caption; of a convention, which docs/method.md and the suite's page have whole, the first clause."""
    return f"{line.partition('; ')[0].removesuffix('.')}." if isinstance(line, ConventionLine) else line
