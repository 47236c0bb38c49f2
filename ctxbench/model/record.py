"""Record of one case."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from ctxbench.base.notes import Note, dumped
from ctxbench.model.conditions import CONDITIONS, SHAPE, Condition
from ctxbench.model.metric import Column, RecordRow
from ctxbench.model.metrics import metrics

STATUSES = ("ok", "oom", "timeout", "error", "crashed", "nan", "unsupported")
# Characters of a message, or of a text in a note, in a record; all of it is in log.txt.
LONGEST = 400


@dataclass(slots=True)
class Record:
    """Record of one case: its identity, its status, and in `values` the columns that metrics fill.

    Units are in the columns' names: `_ms` milliseconds a pass, `_bytes` bytes, `_s` seconds, `_j` joules a pass. The
    files of `ctxbench.model.metrics` declare them. A column that is not in `values` was not measured, or is not known.
    `hparams` has all hyper-parameters, defaults included, in JSON; `changed` names those that differ from the defaults.
    `processes` counts the fresh processes that times come from, `rounds` are their numbers, and `others_share` is the
    largest share of the cores that other work kept busy during one of them. `built` is the call that built the module,
    with its file and line: `mine.py:7 Strided(stride=4, width=32)`.
    """

    case: str
    module: str
    title: str
    family: str
    reference: str
    hparams: str
    changed: str
    batch: int
    channels: int
    height: int
    width: int
    dtype: str
    memory_format: str
    execution: str
    threads: int | None
    device: str
    network: str = ""
    status: str = "ok"
    message: str = ""
    notes: list[Note] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    machine_state: str | None = None
    elapsed_s: float | None = None
    processes: int | None = None
    rounds: str = ""
    others_share: float | None = None
    built: str = ""

    def take(self, values: Mapping[str, Any]) -> None:
        """Put values into their columns. KeyError for a name that is no column."""
        for name, value in values.items():
            if name in metric_columns():
                self.values[name] = value
            elif name in columns():
                setattr(self, name, value)
            else:
                raise KeyError(f"a record has no column {name!r}")

    def note(self, *notes: Note) -> None:
        """Add the notes that are not there yet."""
        for each in notes:
            self.notes += [each] * (each not in self.notes)

    def __getitem__(self, column: str) -> Any:
        """The value of a column; None if it is not known. KeyError if there is no such column."""
        if column in metric_columns():
            return self.values.get(column)
        if column in columns():
            return getattr(self, column)
        raise KeyError(column)

    def get(self, column: str) -> Any:
        """The value of a column; None if it is not known, or there is no such column."""
        return self[column] if column in columns() else None

    def keys(self) -> Iterable[str]:
        return columns()

    def row(self) -> dict[str, str]:
        """The CSV cells by column; line breaks become spaces so that a record is one line."""
        cells = {name: self[name] for name in columns()}
        cells["notes"] = dumped(self.notes) if self.notes else None
        return {name: "" if value is None else " ".join(str(value).splitlines()) for name, value in cells.items()}

    @classmethod
    def of_row(cls, row: RecordRow) -> "Record":
        """The record that was written as a row."""
        own = {name: row[name] for name in columns() if name not in metric_columns()}
        return cls(**own, values={name: row[name] for name in metric_columns() if row[name] not in (None, "")})


_OWN_TYPES: dict[str, type[int] | type[float]] = {"processes": int, "elapsed_s": float, "others_share": float}
_REQUIRED = {"case", "module", "hparams", "status"}


@cache
def metric_columns() -> dict[str, Column]:
    """The columns that metrics fill. ValueError for one that has the name of a record's own."""
    found = {column.name: column for metric in metrics().values() for column in metric.columns}
    if taken := found.keys() & {each.name for each in fields(Record)}:
        raise ValueError(f"Every record has the column {min(taken)} already; a metric cannot declare it.")
    return found


@cache
def columns() -> dict[str, Column]:
    """The columns of `records.csv` in order: the record's own, with the metrics' in place of `values`."""
    found: dict[str, Column] = {}
    conditions = {column: each for each in CONDITIONS.values() for column in each.columns}
    for each in fields(Record):
        if each.name == "values":
            found |= metric_columns()
        elif condition := conditions.get(each.name):
            found[each.name] = _column_of(condition, each.name)
        else:
            found[each.name] = Column(
                each.name,
                _OWN_TYPES.get(each.name, str),
                choices=STATUSES if each.name == "status" else (),
                json=dict if each.name in ("hparams", "machine_state") else None,
                required=each.name in _REQUIRED,
            )
    return found


def _column_of(condition: Condition, name: str) -> Column:
    """A column of a condition; an older table, which lacks it, was measured under the default."""
    least = float(condition is SHAPE)
    default = None if condition.required else condition.default
    return Column(name, condition.kind, least=least, required=condition.required, default=default)
