"""A run folder as a report reads it: typed records, checked cells, and the facts of the machine that made it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ctxbench import devices
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.notes import Note, short
from ctxbench.base.texts import all_safe, safe
from ctxbench.devices.cpu import Cpu
from ctxbench.model.conditions import CONDITIONS, SHAPE, phrases
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import quantities
from ctxbench.model.published import Published
from ctxbench.model.suite_file import parse_pair
from ctxbench.results.rows import rows_of
from ctxbench.results.run_folder import RunFolder

# Above this difference between the medians of the two halves of a measurement, a reader is warned.
DRIFT_WARNING = 0.05
# An interval of at least this confidence is one of 95 %, rounded.
SURE = 0.9495


@dataclass(frozen=True)
class RunData:
    """A run that has been read and checked. `frame` has the records' columns and `shape`, `settings`, `name` as text.

    `every` has all hyper-parameters, `named` those of them that differ from the defaults in any row of the module, and
    `settings` the same as text. `name` is what figures and sentences call a module: its key or, with `titles`, its
    title, and its marks, such as that it is local. `added` is a published table that takes the place of the suite's; so
    do `pairs` of modules, FIRST:SECOND, that of its key `crossover`.
    """

    folder: RunFolder
    frame: pd.DataFrame
    added: Published | None = None
    pairs: Sequence[str] = ()

    @classmethod
    def read(cls, folder: RunFolder, titles: bool = False) -> "RunData":
        """UsageError names the file and the line of the first cell that cannot be."""
        folder.warn_if_altered()
        folder, frame = replace(folder, meta=all_safe(folder.meta)), _safe(folder.frame())
        check_records(frame, folder.path / "records.csv")
        batch, channels, height, width = (frame[name].astype("string") for name in SHAPE.columns)
        frame["shape"] = batch + "x" + channels + "x" + height + "x" + width
        frame["every"] = [_hparams(text, folder.path) for text in frame["hparams"]]
        named: dict[str, set[str]] = {}
        for module, text in zip(frame["module"], frame["changed"], strict=True):
            named.setdefault(module, set()).update(text.split())
        frame["named"] = [
            {name: value for name, value in every.items() if name in named[module]}
            for module, every in zip(frame["module"], frame["every"], strict=True)
        ]
        frame["settings"] = pd.Series(map(settings_text, frame["named"]), frame.index, dtype="string")
        names = frame["title"].where(frame["title"] != "", frame["module"]) if titles else frame["module"]
        marked = [f"{name}{marks(notes)}" for name, notes in zip(names, frame["notes"], strict=True)]
        frame["name"] = pd.Series(marked, frame.index, dtype="string")
        return cls(folder, frame)

    @cached_property
    def rows(self) -> Sequence[RecordRow]:
        """The rows of the frame."""
        return rows_of(self.frame)

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

    @property
    def crossover(self) -> list[tuple[str, str]]:
        """The pairs of modules whose crossovers are shown."""
        return [parse_pair(text) for text in dict.fromkeys(self.pairs or self.definition.get("crossover") or ())]

    @property
    def environment(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.meta.get("environment") or {}
        return found

    @cached_property
    def samples(self) -> pd.DataFrame:
        """`samples.csv`, in time order within a case and mode."""
        return self.folder.samples()

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """`timeline.csv`, in the order of the pass within a case and mode; empty in a run without one."""
        return self.folder.timeline()

    def device_name(self, device: str) -> str:
        """The product behind a device's name; the name itself where the run does not tell."""
        sheet = (self.meta.get("sheets") or {}).get(device)
        return f"{sheet['title']} (times predicted)" if sheet else devices.product(device, self.environment)

    def devices(self) -> list[str]:
        return list(dict.fromkeys(row["device"] for row in self.rows))

    def only(self, modules: Sequence[str], shapes: Sequence[str]) -> "RunData":
        """The rows of these modules and inputs, in this order; nothing given: all. UsageError for one without rows."""
        frame = self.frame
        for column, wanted in (("module", modules), ("shape", shapes)):
            there = list(self.frame[column].unique())
            for name in wanted:
                if name not in there:
                    raise unknown(f"{column} of this run", name, there)
            if wanted:
                frame = pd.concat([frame[frame[column] == name] for name in dict.fromkeys(wanted)], ignore_index=True)
        if frame.empty:
            raise UsageError("no row of this run is chosen")
        return replace(self, frame=frame)

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


def _safe(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with safe texts: figures, captions and sentences are made of these."""
    return frame.assign(**{name: frame[name].map(safe) for name in frame.select_dtypes("string")})


def open_run(path: Path, titles: bool = False) -> RunData:
    """Read a run folder. UsageError if it is none, of an unknown schema, or damaged."""
    return RunData.read(RunFolder.open(path), titles)


def check_records(frame: pd.DataFrame, path: Path) -> None:
    """UsageError with file, line and value for a record that no run can have written."""
    for each in quantities().values():
        if not each.has_interval:
            continue
        median, low, high = (frame[name] for name in (each.column, each.detail("low_ms"), each.detail("high_ms")))
        _refuse(low > median, low, path, f"must be at most the median, {median.name}")
        _refuse(high < median, high, path, f"must be at least the median, {median.name}")


def drifts(row: RecordRow, time: Quantity) -> bool:
    """True if the halves of a measurement differ by more than DRIFT_WARNING, and more than its interval explains."""
    median = row[time.column]
    low, high, drift = (row[time.detail(name)] for name in ("low_ms", "high_ms", "drift"))
    if drift is None or abs(drift) <= DRIFT_WARNING:
        return False
    return low is None or high is None or bool(abs(drift) > (high - low) / (2 * median))


def _refuse(wrong: "pd.Series[bool]", column: "pd.Series[Any]", path: Path, sentence: str) -> None:
    if wrong.any():
        index = int(wrong.to_numpy().argmax())
        raise UsageError(f"{path}, line {index + 2}: {column.name} is {str(column.iloc[index])!r}; it {sentence}")


def settings_text(hparams: Mapping[str, Any]) -> str:
    """Hyper-parameters for a reader: `steps=3, rank=8`."""
    return ", ".join(f"{name}={value}" for name, value in hparams.items())


def _hparams(text: str, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        raise UsageError(f"{path / 'records.csv'}: hparams is {text!r}; it must be an object in JSON") from None
