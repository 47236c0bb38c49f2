"""The tables of a run folder: their columns, and what a reader gets of them."""

import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ctxbench.base import limits
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES
from ctxbench.base.notes import Note, parsed
from ctxbench.model.control import STREAM
from ctxbench.model.metric import POSITIVE, Column, Derivation, RecordRow
from ctxbench.model.metrics import quantities, read_number
from ctxbench.model.record import columns
from ctxbench.results.csv_file import read_columns, stored
from ctxbench.results.rows import rows_in


def _required(**types: type[int] | type[float] | type[str]) -> tuple[Column, ...]:
    return tuple(Column(name, kind, required=True) for name, kind in types.items())


PHASES = ("forward", "backward")
SAMPLE_COLUMNS = (
    *_required(case=str, process=int),
    Column("mode", str, choices=(*MODES, STREAM), required=True),
    *_required(index=int, at_s=float),
    Column("passes", int, least=1, required=True),
    Column("ms", float, least=POSITIVE, required=True),
)
TIMELINE_COLUMNS = (
    *_required(case=str),
    Column("mode", str, choices=MODES, required=True),
    *_required(step=int),
    Column("phase", str, choices=PHASES, required=True),
    *_required(op=str, bytes=int),
)


# Only figures and the explanation of a peak need these.
STREAMS = ("samples.csv", "timeline.csv")


def tables() -> dict[str, tuple[Column, ...]]:
    """The CSV files of a run folder and their columns."""
    records = tuple(columns().values())
    return {
        "records.csv": records,
        "processes.csv": (*records, *_required(process=int)),
        "samples.csv": SAMPLE_COLUMNS,
        "timeline.csv": TIMELINE_COLUMNS,
    }


def read_records(path: Path) -> list[dict[str, Any]]:
    """The rows of a `records.csv`. UsageError if it is damaged, or does not say which case a record is of."""
    return _read_records(path, tables()["records.csv"])


def read_processes(path: Path) -> list[dict[str, Any]]:
    """The same of a `processes.csv`, whose rows have a number of their process, too."""
    return _read_records(path, tables()["processes.csv"])


def types() -> dict[str, type]:
    """Types of the columns of a record, those included that derive from others."""
    derived = {each.column: float for each in quantities().values() if each.derive}
    return {each.name: each.type for each in columns().values() if each.name != "notes"} | derived


def _read_records(path: Path, wanted: Iterable[Column]) -> list[dict[str, Any]]:
    rows = rows_in(read_columns(path, wanted))
    seen: set[tuple[Any, ...]] = set()
    for line, row in enumerate(rows, 2):
        row["notes"] = parsed(row["notes"], f"{path}, line {line}")
        key = row["case"], row.get("process")
        if key in seen:
            raise UsageError(f"{path}, line {line}: case is {row['case']!r}; it stands in an earlier line too")
        seen.add(key)
        if unknown := set(row["changed"].split()) - json.loads(row["hparams"]).keys():
            raise UsageError(f"{path}, line {line}: changed has {min(unknown)!r}, which is none of its hparams")
    return rows


def add_medians(rows: Sequence[dict[str, Any]], path: Path, apart: Collection[str] = ()) -> None:
    """Give records the medians of the processes that their times come from, by number, in `<time>_processes`.

    They are read from `path`, a `processes.csv`; there are none for the cases `apart`, nor without that file.
    """
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    if os.path.lexists(stored(path)):
        wanted = (*_required(case=str, process=int), *(columns()[column] for column in medians().values()))
        for row in rows_in(read_columns(path, wanted)):
            found.setdefault(row["case"], {})[row["process"]] = row
    for line, row in enumerate(rows, 2):
        own = {} if row["case"] in apart else found.get(row["case"], {})
        used = [number for number in _numbers(row["rounds"], path.with_name("records.csv"), line) if number in own]
        for name, column in medians().items():
            row[name] = {number: own[number][column] for number in used if own[number][column]}


@cache
def medians() -> dict[str, str]:
    """The columns of medians of processes by number, and the column of a process that each is from."""
    found = {each.detail("processes"): each.column for each in quantities().values() if each.has_interval}
    return {**found, "control_processes": "control_ms"}


def _numbers(text: str, path: Path, line: int) -> list[int]:
    """The numbers of the processes that a row's times come from."""
    try:
        return [limits.integer(number) for number in text.split()]
    except ValueError:
        raise UsageError(f"{path}, line {line}: rounds is {text!r}, not the numbers of processes") from None


def add_derived(rows: Sequence[dict[str, Any]]) -> None:
    """Give records the quantities that derive from others; None in a row that lacks one of them.

    A derivation that fails for a row, or gives no finite number, is a note of that row.
    """
    for quantity in quantities().values():
        if not (derive := quantity.derive):
            continue
        for row in rows:
            try:
                row[quantity.column] = _derived(row, derive)
                read_number(row, quantity)  # its interval and medians, too
            except Exception as error:  # by code of a plugin, for whose fault no other number of the run is lost
                row[quantity.column] = None
                reason = f"{type(error).__name__}: {error}"
                row["notes"].append(Note("not_derived", {"title": quantity.title, "reason": reason}, quantity.key))


def _derived(row: RecordRow, derive: Derivation) -> float | None:
    """The value of a quantity that derives from others. ValueError for one that is not finite."""
    source = quantities()[derive.source].column
    if None in [row[name] for name in (source, *derive.needs)]:
        return None
    value = derive.value(row, row[source])
    if not math.isfinite(value):
        raise ValueError(f"the result is {value}")
    return value
