"""The lines under a table: whose numbers, on what, under which conventions."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from ctxbench.base.mode import MODES
from ctxbench.model.metric import ColumnValues, Unit
from ctxbench.model.metrics import metrics, stored_quantities
from ctxbench.table.table import Column, Convention

from ..published import is_prefix
from ..run_data import RunData


def caption_lines(
    run: RunData, columns: Sequence[Column], units: Mapping[str, Unit], hidden: int = 0
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
    lines += convention_lines(units, values_in(run.frame))
    lines += _bold_line(units)
    if run.meta.get("state") not in (None, "finished"):
        lines.append(f"The run is not finished (state: {run.meta['state']}); rows are missing.")
    failed = int((run.frame["status"] != "ok").sum())
    if failed:
        lines.append(f"{failed} of {len(run.frame)} rows failed; their status and message are shown.")
    if hidden:
        lines.append(f"{hidden} more rows are in the CSV table.")
    return tuple(lines)


def setup(run: RunData) -> str:
    """Device, software, input, date and commit in one phrase; what differs between rows stands in the rows."""
    environment = run.environment
    packages = environment.get("packages") or {}
    parts = [", ".join(run.device_name(device) for device in run.devices())]
    parts.append(f"torch {packages.get('torch') or 'unknown'}")
    parts += [] if run.frame.empty else run.conditions(run.frame)
    if run.frame["settings"].nunique() == 1 and run.frame["settings"].iloc[0]:
        parts.append(str(run.frame["settings"].iloc[0]))
    if environment.get("time"):
        parts.append(str(environment["time"])[:10])
    if environment.get("commit"):
        commit, plus, changes = str(environment["commit"]).partition("+")
        parts.append(f"commit {commit[:10]}{plus}{changes}")
    return ", ".join(parts)


def convention_lines(units: Mapping[str, Unit], values: ColumnValues) -> list[Convention]:
    """Conventions of the numbers: a line for each metric of which a quantity is in `units`."""
    lines = []
    for metric in metrics().values():
        shown = [quantity.key for quantity in metric.quantities if quantity.key in units]
        if shown:
            explained = dict.fromkeys(f"; {units[key]}" for key in shown if is_prefix(units[key]))
            lines.append(Convention(f"{_clauses(metric.convention(values), shown)}{''.join(explained)}."))
    return lines


def _clauses(convention: str, keys: Sequence[str]) -> str:
    """The convention without the clauses on a mode, such as `; train: ...`, of which no quantity is shown."""
    hidden = tuple(f"{mode}: " for mode in MODES if not any(key.endswith(f"_{mode}") for key in keys))
    return "; ".join(clause for clause in convention.split("; ") if not clause.startswith(hidden))


def values_in(frame: pd.DataFrame) -> ColumnValues:
    """Values of the rows of a frame in a column, each once."""
    return lambda column: [str(value) for value in frame[column].dropna().unique() if str(value)]


def _bold_line(shown: Collection[str]) -> list[str]:
    better = {each.better for each in stored_quantities() if each.key in shown and each.better}
    if not better:
        return []
    word = "smallest" if better == {"smaller"} else "best"
    return [f"Bold: the {word} under the same conditions, and what is statistically tied with it."]
