"""A run folder as a report reads it: typed records, checked cells, and the facts of the machine that made it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import devices
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.notes import Note, short
from ctxbench.base.texts import all_safe, safe
from ctxbench.devices.cpu import Cpu
from ctxbench.model.conditions import CONDITIONS, SHAPE, phrases
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import quantities
from ctxbench.model.published import Published
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import types
from ctxbench.table.numbers import Numbers

if TYPE_CHECKING:
    import pandas as pd

# Above this difference between the medians of the two halves of a measurement, a reader is warned.
DRIFT_WARNING = 0.05
# An interval of at least this confidence is one of 95 %, rounded.
SURE = 0.9495
# Of the columns that a reader's rows have beside the records'.
TYPES: dict[str, type] = dict.fromkeys(("shape", "settings", "name"), str)


@dataclass(frozen=True)
class RunData:
    """A run that has been read and checked. `rows` have the records' columns and `shape`, `settings`, `name` as text.

    `every` has all hyper-parameters, `named` those of them that differ from the defaults in any row of the module, and
    `settings` the same as text. `name` is what figures and sentences call a module: its key or, with `titles`, its
    title, and its marks, such as that it is local. `added` is a published table that takes the place of the suite's; so
    do the texts of `given` that of its keys of the same names.
    """

    folder: RunFolder
    rows: Sequence[RecordRow]
    added: Published | None = None
    given: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: RunFolder, titles: bool = False) -> "RunData":
        """UsageError names the file and the line of the first cell that cannot be."""
        folder.warn_if_altered()
        folder, rows = replace(folder, meta=all_safe(folder.meta)), folder.rows()
        texts = [name for name, kind in types().items() if kind is str]
        for row in rows:
            row.update({name: safe(row[name]) for name in texts if row[name] is not None})
        check_records(rows, folder.path / "records.csv")
        named: dict[str, set[str]] = {}
        for row in rows:
            named.setdefault(row["module"], set()).update(row["changed"].split())
        for row in rows:
            row["shape"] = "x".join(str(row[name]) for name in SHAPE.columns)
            row["every"] = _hparams(row["hparams"], folder.path)
            row["named"] = {name: value for name, value in row["every"].items() if name in named[row["module"]]}
            row["settings"] = settings_text(row["named"])
            row["name"] = f"{(titles and row['title']) or row['module']}{marks(row['notes'])}"
        return cls(folder, rows)

    @cached_property
    def frame(self) -> "pd.DataFrame":
        return Numbers.of_rows(self.rows, types=TYPES | types()).frame

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.folder.meta

    @property
    def unfinished(self) -> str:
        """The state of a run that is not finished; "" of one that is, or does not tell."""
        state = self.meta.get("state")
        return "" if state in (None, "finished") else str(state)

    @property
    def suite(self) -> str:
        return str(self.meta.get("suite", self.name))

    @property
    def definition(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.meta.get("definition") or {}
        return found

    @cached_property
    def published(self) -> Published | None:
        """Published figures beside the run's numbers; None if its suite names nothing."""
        stored = self.definition.get("published")
        return self.added or (Published.model_validate(stored) if stored else None)

    def texts(self, key: str) -> list[str]:
        """The texts of a key of suites that a plugin brings."""
        return [*dict.fromkeys(self.given.get(key) or self.definition.get(key) or ())]

    @property
    def environment(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.meta.get("environment") or {}
        return found

    @cached_property
    def samples(self) -> Sequence[RecordRow]:
        """The rows of `samples.csv`, in time order within a case and mode."""
        return self.folder.stream("samples.csv")

    @cached_property
    def timeline(self) -> Sequence[RecordRow]:
        """The rows of `timeline.csv`, in the order of the pass within a case and mode; none in a run without one."""
        return self.folder.stream("timeline.csv")

    def device_name(self, device: str) -> str:
        """The product behind a device's name; the name itself where the run does not tell."""
        sheet = (self.meta.get("sheets") or {}).get(device)
        return f"{sheet['title']} (times predicted)" if sheet else devices.product(device, self.environment)

    def devices(self) -> list[str]:
        return list(dict.fromkeys(row["device"] for row in self.rows))

    def only(self, modules: Sequence[str], shapes: Sequence[str]) -> "RunData":
        """The rows of these modules and inputs, in this order; nothing given: all. UsageError for one without rows."""
        rows = self.rows
        for column, wanted in (("module", modules), ("shape", shapes)):
            there = list(dict.fromkeys(row[column] for row in self.rows))
            for name in wanted:
                if name not in there:
                    raise unknown(f"{column} of this run", name, there)
            if wanted:
                rows = [row for name in dict.fromkeys(wanted) for row in rows if row[column] == name]
        if not rows:
            raise UsageError("no row of this run is chosen")
        return replace(self, rows=rows)

    def conditions(self, rows: Sequence[RecordRow], threads: bool = True) -> list[str]:
        """Common conditions of these rows: `threads` on a CPU, input, dtype; layout and execution if not the default.

        A letter stands for a size in which the rows differ: `input [1, 512, H, W]`.
        """
        found = []
        same = [name for name in CONDITIONS if len({row[name] for row in rows}) == 1]
        if threads and "threads" in same and Cpu.kind in {kind_of(row["device"]) for row in rows}:
            count = self.environment.get("torch_threads") if rows[0]["threads"] is None else rows[0]["threads"]
            found += [CONDITIONS["threads"].label(count)] if count else []
        sizes = [{row[name] for row in rows} for name in SHAPE.columns]
        texts = [str(*size) if len(size) == 1 else letter for size, letter in zip(sizes, "BCHW", strict=True)]
        found.append(f"input [{', '.join(texts)}]")
        apart = ("shape", "threads", "device")
        return found + phrases({name: [rows[0][name]] for name in same if name not in apart})

    def differing(self) -> list[str]:
        """The conditions of which this run has more than one, `settings` (hyper-parameters) first."""
        return [name for name in ("settings", *CONDITIONS) if len({row[name] for row in self.rows}) > 1]


def heading_of(name: str) -> str:
    """The heading of a condition, or of `settings`."""
    return CONDITIONS[name].title if name in CONDITIONS else "Settings"


def kind_of(device: str) -> str:
    """The kind of a device; its name where it is of no kind that is known here."""
    try:
        return devices.device(device).kind
    except UsageError:
        return device


def marks(notes: Iterable[Note]) -> str:
    """Marks of a row in brackets, for behind its name: ` [local: 7 x 7]`."""
    found = ", ".join(safe(short(each)) for each in notes if each.code == "mark")
    return f" [{found}]" if found else ""


def open_run(path: Path, titles: bool = False) -> RunData:
    """Read a run folder. UsageError if it is none, of an unknown schema, or damaged."""
    return RunData.read(RunFolder.open(path), titles)


def check_records(rows: Sequence[RecordRow], path: Path) -> None:
    """UsageError with file, line and value for a record that no run can have written."""
    for each in (one for one in quantities().values() if one.has_interval):
        for line, row in enumerate(rows, 2):
            median, low, high = (row[name] for name in (each.column, each.detail("low_ms"), each.detail("high_ms")))
            wrong = ""
            if None not in (median, low) and low > median:
                wrong = f"{each.detail('low_ms')} is {str(low)!r}; it must be at most"
            elif None not in (median, high) and high < median:
                wrong = f"{each.detail('high_ms')} is {str(high)!r}; it must be at least"
            if wrong:
                raise UsageError(f"{path}, line {line}: {wrong} the median, {each.column}")


def drifts(row: RecordRow, time: Quantity) -> bool:
    """True if the halves of a measurement differ by more than DRIFT_WARNING, and more than its interval explains."""
    median = row[time.column]
    low, high, drift = (row[time.detail(name)] for name in ("low_ms", "high_ms", "drift"))
    if drift is None or abs(drift) <= DRIFT_WARNING:
        return False
    return low is None or high is None or bool(abs(drift) > (high - low) / (2 * median))


def settings_text(hparams: Mapping[str, Any]) -> str:
    """Hyper-parameters for a reader: `steps=3, rank=8`."""
    return ", ".join(f"{name}={value}" for name, value in hparams.items())


def _hparams(text: str, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        raise UsageError(f"{path / 'records.csv'}: hparams is {text!r}; it must be an object in JSON") from None
