"""The tables of a run folder: their columns, and what a reader gets of them."""

import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.errors import UsageError
from ctxbench.metrics import quantities
from ctxbench.metrics.base import POSITIVE, Column, Derivation
from ctxbench.metrics.control import STREAM
from ctxbench.mode import MODES
from ctxbench.notes import parsed
from ctxbench.results.csv_file import read_table
from ctxbench.results.record import columns
from ctxbench.results.rows import rows_of

if TYPE_CHECKING:
    import pandas as pd


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


def read_records(path: Path) -> "pd.DataFrame":
    """The records of a `records.csv`. UsageError if it is damaged, or does not say which case a record is of."""
    return _read_records(path, tables()["records.csv"])


def read_processes(path: Path) -> "pd.DataFrame":
    """The same of a `processes.csv`, whose records have a number of their process, too."""
    return _read_records(path, tables()["processes.csv"])


def with_derived(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Records with the quantities that derive from others."""
    return frame.assign(**{each.column: _derived(frame, each.derive) for each in quantities().values() if each.derive})


def _read_records(path: Path, wanted: Iterable[Column]) -> "pd.DataFrame":
    frame = read_table(path, wanted)
    frame["notes"] = [parsed(text, f"{path}, line {line}") for line, text in enumerate(frame["notes"], 2)]
    _check_identity(frame, path)
    return frame


def _check_identity(frame: "pd.DataFrame", path: Path) -> None:
    """UsageError with the line for a record that is there twice, or that changes what is no hyper-parameter."""
    names = [name for name in ("case", "process") if name in frame]
    seen: Counter[tuple[Any, ...]] = Counter()
    texts = frame["hparams"], frame["changed"]
    for line, (hparams, changed, *key) in enumerate(zip(*texts, *(frame[name] for name in names), strict=True), 2):
        seen[tuple(key)] += 1
        if seen[tuple(key)] > 1:
            raise UsageError(f"{path}, line {line}: {names[0]} is {str(key[0])!r}; it stands in an earlier line too")
        if unknown := set(changed.split()) - json.loads(hparams).keys():
            raise UsageError(f"{path}, line {line}: changed has {min(unknown)!r}, which is none of its hparams")


def with_medians(frame: "pd.DataFrame", path: Path, apart: Collection[str] = ()) -> "pd.DataFrame":
    """Records with the medians of the processes that their times come from, by number, in `<time>_processes`.

    They are read from `path`, a `processes.csv`; there are none for the cases `apart`, nor without that file.
    """
    names = {each.detail("processes"): each.column for each in quantities().values() if each.has_interval}
    names["control_processes"] = "control_ms"
    medians: dict[str, dict[str, dict[int, float]]] = {name: {} for name in names}
    if os.path.lexists(path):
        wanted = (*_required(case=str, process=int), *(columns()[column] for column in names.values()))
        processes = read_table(path, wanted)
        for name, column in names.items():
            for case, number, ms in zip(processes["case"], processes["process"], processes[column], strict=True):
                if ms > 0:
                    medians[name].setdefault(case, {})[int(number)] = ms
    used = [_numbers(text, path.with_name("records.csv"), line) for line, text in enumerate(frame["rounds"], 2)]
    for name, found in medians.items():
        own = [{} if case in apart else found.get(case, {}) for case in frame["case"]]
        frame[name] = [{n: each[n] for n in numbers if n in each} for numbers, each in zip(used, own, strict=True)]
    return frame


def _numbers(text: str, path: Path, line: int) -> list[int]:
    """The numbers of the processes that a row's times come from."""
    try:
        return [int(number) for number in text.split()]
    except ValueError:
        raise UsageError(f"{path}, line {line}: rounds is {text!r}, not the numbers of processes") from None


def _derived(frame: "pd.DataFrame", derive: Derivation) -> "pd.Series[float]":
    """A quantity that derives from others; NaN in a row that lacks one of them."""
    import pandas as pd

    source = quantities()[derive.source].column
    rows = rows_of(frame[[source, *derive.needs]])
    values = [math.nan if None in row.values() else derive.value(row, row[source]) for row in rows]
    return pd.Series(values, frame.index, dtype="float64")
