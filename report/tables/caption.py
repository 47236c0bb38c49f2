"""The lines under a table: whose numbers, on what, under which conventions."""

from collections.abc import Collection, Mapping, Sequence

from ctxbench.base.extras import with_science
from ctxbench.base.mode import MODES
from ctxbench.base.texts import listed
from ctxbench.model.metric import ColumnValues, RecordRow, Unit
from ctxbench.model.metrics import metrics, stored_quantities
from ctxbench.table.table import ConventionLine, TableColumn

from ..published import is_prefix
from ..run_data import RunData


def caption_lines(
    run: RunData, columns: Sequence[TableColumn], units: Mapping[str, Unit], hidden: int = 0
) -> tuple[str, ...]:
    """Caption lines needed to use the numbers: the `units` shown; `hidden` rows are in the CSV only."""
    lines = []
    if any(column.origin == "published" for column in columns):
        assert run.published is not None
        device = run.published.device
        lines.append(
            f"paper: {run.published.source}"
            + (f", on {device}; times on different devices are not compared." if device else ".")
        )
    elif run.published:
        lines.append("No published number is shown: none belongs to these inputs, dtypes and hyper-parameters.")
    lines.append(f"here: {setup(run)}.")
    lines += convention_lines(units, values_in(run.rows))
    lines += _bold_line(units)
    if run.unfinished:
        lines.append(f"The run is not finished (state: {run.unfinished}); rows are missing.")
    failed = sum(row["status"] != "ok" for row in run.rows)
    if failed:
        lines.append(f"{failed} of {len(run.rows)} rows failed; their status and message are shown.")
    if unknown := [name for name in run.definition.get("metrics", ()) if name not in metrics()]:
        lines.append(
            f"The run measured {listed(unknown)}, which is left out: no installed plugin knows it"
            f"{with_science('more metrics')}."
        )
    if hidden:
        lines.append(f"{hidden} more rows are in the CSV table.")
    return tuple(lines)


def setup(run: RunData, rows: Sequence[RecordRow] = ()) -> str:
    """Device, software, input, date and commit of rows of a run (none: all) in one phrase.

    What differs between rows stands in the rows.
    """
    environment, rows = run.environment, rows or run.rows
    packages = environment.get("packages") or {}
    parts = [", ".join(run.device_name(device) for device in dict.fromkeys(row["device"] for row in rows))]
    parts.append(f"torch {packages.get('torch') or 'unknown'}")
    parts += run.conditions(rows) if rows else []
    settings = {str(row["settings"]) for row in rows}
    parts += filter(None, settings if len(settings) == 1 else ())
    if environment.get("time"):
        parts.append(str(environment["time"])[:10])
    if environment.get("commit"):
        commit, plus, changes = str(environment["commit"]).partition("+")
        parts.append(f"commit {commit[:10]}{plus}{changes}")
    if counted := run.meta.get("counted"):
        parts.append(f"counts and predictions of commit {counted['commit'][:10]}")
    return ", ".join(parts)


def convention_lines(units: Mapping[str, Unit], values: ColumnValues) -> list[ConventionLine]:
    """Conventions of the numbers: a line for each metric of which a quantity is in `units`."""
    lines = []
    for metric in metrics().values():
        shown = [quantity.key for quantity in metric.quantities if quantity.key in units]
        text = metric.convention if isinstance(metric.convention, str) else metric.convention(values)
        if shown and text:
            explained = dict.fromkeys(f"; {units[key]}" for key in shown if is_prefix(units[key]))
            lines.append(ConventionLine(f"{_clauses(text, shown)}{''.join(explained)}."))
    return lines


def _clauses(convention: str, keys: Sequence[str]) -> str:
    """The convention without the clauses on a mode, such as `; train: ...`, of which no quantity is shown."""
    hidden = tuple(f"{mode}: " for mode in MODES if not any(key.endswith(f"_{mode}") for key in keys))
    return "; ".join(clause for clause in convention.split("; ") if not clause.startswith(hidden))


def values_in(rows: Sequence[RecordRow]) -> ColumnValues:
    """Values of rows in a column, each once."""
    return lambda column: [
        str(value) for value in dict.fromkeys(row.get(column) for row in rows) if value is not None and str(value)
    ]


def _bold_line(shown: Collection[str]) -> list[str]:
    better = {each.better for each in stored_quantities() if each.key in shown and each.better}
    if not better:
        return []
    word = "smallest" if better == {"smaller"} else "best"
    return [f"Bold: the {word} under the same conditions, and what is statistically tied with it."]
