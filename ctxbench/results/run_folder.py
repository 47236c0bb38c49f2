"""The run folder: each process is written as it finishes, one row a case is made from its processes."""

import csv
import io
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.errors import AlteredRun, UsageError
from ctxbench.messages import PredictedTime, Sample, TimelineStep
from ctxbench.metrics.base import POSITIVE, Column
from ctxbench.metrics.control import STREAM
from ctxbench.mode import MODES
from ctxbench.results.csv_file import (
    append_text,
    csv_line,
    encoded,
    fingerprint,
    mend,
    read_table,
    replace_file,
)
from ctxbench.results.record import Record, columns
from ctxbench.results.run_meta import check_meta, require

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 8


def _named(*columns: Column) -> dict[str, Column]:
    return {column.name: column for column in columns}


def _columns(since: int = 1, **types: type[int] | type[float] | type[str]) -> dict[str, Column]:
    return {name: Column(name, kind, since, required=True) for name, kind in types.items()}


_PROCESS = Column("process", int, 4, required=True)
SAMPLE_COLUMNS = {
    **_columns(case=str),
    **_named(_PROCESS, Column("mode", str, choices=(*MODES, STREAM), required=True)),
    **_columns(index=int, at_s=float),
    **_named(Column("passes", int, least=1, required=True), Column("ms", float, least=POSITIVE, required=True)),
}

PHASES = ("forward", "backward")
TIMELINE_COLUMNS = {
    **_columns(since=2, case=str),
    **_named(Column("mode", str, 2, choices=MODES, required=True)),
    **_columns(since=2, step=int),
    **_named(Column("phase", str, 2, choices=PHASES, required=True)),
    **_columns(since=2, op=str, bytes=int),
}
PREDICTION_COLUMNS = {
    **_columns(since=5, case=str, target=str, title=str),
    **_named(
        *(
            Column(f"latency_{mode}_predicted_{end}", kind, 5, least=POSITIVE)
            for mode in MODES
            for end, kind in {"ms": float, "low_ms": float, "high_ms": float, "notes": str}.items()
        )
    ),
}


def tables() -> dict[str, dict[str, Column]]:
    """The CSV files of a run folder and their columns."""
    return {
        "records.csv": columns(),
        "processes.csv": {
            name: replace(column, since=max(4, column.since))
            for name, column in {**columns(), "process": _PROCESS}.items()
        },
        "samples.csv": SAMPLE_COLUMNS,
        "timeline.csv": TIMELINE_COLUMNS,
        "predictions.csv": PREDICTION_COLUMNS,
    }


@dataclass
class RunFolder:
    """A folder `results/<suite>-<time>/` with the CSV files of `tables` and `run.json`.

    What a process measured is a row of `processes.csv`, and `records.csv` is made from these. The samples and timeline
    of a process are on disk before its row is, and that is one `write` followed by `fsync`: a folder whose writer was
    killed holds whole processes, possibly with rows of an unfinished one in the other tables, which `recover` removes.
    A folder of an older schema is read, never written to.
    """

    path: Path
    meta: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, Any]) -> "RunFolder":
        """Make the folder and its empty tables. UsageError if it exists with a run inside or cannot be written."""
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file; --out takes a folder")
        if (path / "run.json").exists():
            raise UsageError(
                f"{path} already holds a run; continue it with ctxbench resume {path}, or choose another --out"
            )
        folder = cls(path, {**meta, "schema": SCHEMA})
        with folder._written():
            path.mkdir(parents=True, exist_ok=True)
        folder.save_meta()
        folder._make_tables()
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder, for reading or resuming. UsageError if it is none or of an unknown schema."""
        if path.is_file():
            raise UsageError(f"{path} is a file; name the run folder that it is in, {path.parent}")
        try:
            meta = json.loads((path / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{path} is no run folder: it has no run.json") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path / 'run.json'} is damaged: {error}") from None
        schema = meta.get("schema") if isinstance(meta, dict) else None
        if type(schema) is not int or schema < 1:  # True would be 1
            raise UsageError(f"{path / 'run.json'} has schema {schema!r}; a run has one from 1 to {SCHEMA}")
        if schema > SCHEMA:
            raise UsageError(
                f"{path} was written by a newer ctxbench: it has schema {schema}, this one reads up to {SCHEMA}; "
                "install a newer ctxbench"
            )
        check_meta(meta, path / "run.json")
        return cls(path, meta)

    def require(self, keys: Iterable[str]) -> None:
        """UsageError if `run.json` lacks one of these keys of `run_meta`."""
        require(self.meta, self.path / "run.json", keys)

    def altered(self) -> str:
        """A sentence that says which tables are not those that the run wrote; "" if all are, or nothing tells."""
        found = []
        for name in tables():
            then, now = (self.meta.get("tables") or {}).get(name), fingerprint(self.path / name)
            if then and then["rows"] != now["rows"]:
                found.append(f"{name} has {now['rows']:,} rows, not {then['rows']:,}")
            elif then and then["sha256"] != now["sha256"]:
                found.append(f"{name} has other content")
        return f"{self.path} is not as its run wrote it: {'; '.join(found)}" * bool(found)

    def warn_if_altered(self) -> None:
        """Warn with AlteredRun if a table is not the one that the run wrote."""
        if sentence := self.altered():
            warnings.warn(AlteredRun(sentence), stacklevel=3)

    def save_meta(self, **changes: Any) -> None:
        """Rewrite `run.json` whole, through a rename."""
        with self._written():
            self.meta |= changes
            replace_file(self.path / "run.json", (json.dumps(self.meta, indent=2) + "\n").encode())

    def finish(self, state: str) -> None:
        """Write into `run.json` how the run ended, and which tables it has left."""
        self.save_meta(state=state, tables={name: fingerprint(self.path / name) for name in tables()})

    def append(
        self,
        number: int,
        record: Record,
        samples: Mapping[str, Iterable[Sample]],
        timelines: Mapping[str, Iterable[TimelineStep]] | None = None,
        predicted: Iterable[PredictedTime] = (),
    ) -> None:
        """Write what process `number` of a case found: samples, predicted memory and times, then its row."""
        sampled = [
            csv_line([record.case, number, mode, i, f"{s.at_s:.6f}", s.passes, repr(s.ms)])
            for mode, stream in samples.items()
            for i, s in enumerate(stream)
        ]
        steps = [
            csv_line([record.case, mode, step.step, step.phase, step.op, step.bytes])
            for mode, timeline in (timelines or {}).items()
            for step in timeline
        ]
        with self._written():
            append_text(self.path / "samples.csv", "".join(sampled))
            append_text(self.path / "timeline.csv", "".join(steps))
            append_text(self.path / "predictions.csv", "".join(_prediction_lines(record.case, predicted)))
            append_text(self.path / "processes.csv", csv_line([*record.row(), number]))

    def write_records(self, records: Iterable[Record]) -> None:
        """Write `records.csv` whole."""
        lines = [csv_line(columns()), *(csv_line(record.row()) for record in records)]
        with self._written():
            replace_file(self.path / "records.csv", encoded("".join(lines)))

    def finished(self) -> dict[str, dict[int, Record]]:
        """What the finished processes of each case measured, by their numbers; none in an older folder."""
        found: dict[str, dict[int, Record]] = {}
        frame = read_records(self.path / "processes.csv", self.meta["schema"], columns=tables()["processes.csv"])
        for row in frame.to_dict("records"):
            number = int(row.pop("process"))
            found.setdefault(row["case"], {})[number] = Record.of_row(row)
        return found

    def log(self, case: str, text: str) -> None:
        """Keep what a case printed or raised, for a person to read: `log.txt`. Paths are from the working folder."""
        text = text.replace(f"{Path.cwd()}{os.sep}", "").rstrip()
        with self._written():
            append_text(self.path / "log.txt", f"== {case}\n{text}\n\n")

    def recover(self) -> list[str]:
        """Remove what a killed writer left half done: lines that are torn, rows of a process that did not finish.

        Returns a sentence for each table with torn lines before its last. UsageError for a table that is damaged in
        another way.
        """
        self._make_tables()
        with self._written():
            torn = {name: mend(self.path / name, header) for name, header in tables().items()}
            for name, header in tables().items():
                read_table(self.path / name, header, SCHEMA)
            finished = self.finished()
            for name in tables():
                self._keep(name, lambda row: int(row.get("process", 0)) in finished.get(row["case"], ()))
        return [f"{self.path / name}: {count} torn lines were removed" for name, count in torn.items() if count]

    def drop(self, cases: set[str]) -> None:
        """Remove what the given cases left in every table, so that they can be measured again."""
        with self._written():
            for name in tables():
                self._keep(name, lambda row: row["case"] not in cases)

    def _make_tables(self) -> None:
        """Write the header of each table that is not there."""
        with self._written():
            for name, header in tables().items():
                if not (self.path / name).exists():
                    (self.path / name).write_text(csv_line(header), encoding="utf-8")

    def _keep(self, name: str, wanted: Callable[[Mapping[str, str]], bool]) -> None:
        """Rewrite a table without the rows that are not wanted, if it has any."""
        header, *rows = csv.reader(io.StringIO((self.path / name).read_text(encoding="utf-8")))
        kept = [row for row in rows if wanted(dict(zip(header, row, strict=True)))]
        if len(kept) < len(rows):
            replace_file(self.path / name, encoded("".join(map(csv_line, [header, *kept]))))

    def frame(self) -> "pd.DataFrame":
        """`records.csv` as a data frame: Int64 for counts, float64 for times, string for text, lists of warnings."""
        return read_records(self.path / "records.csv", self.meta["schema"])

    @property
    def failed(self) -> int:
        """How many cases have another status than `ok`."""
        return int((self.frame()["status"] != "ok").sum())

    def samples(self) -> "pd.DataFrame":
        """`samples.csv` as a data frame, in time order within a case and mode; the mode `control` is the control's."""
        return read_table(self.path / "samples.csv", SAMPLE_COLUMNS, self.meta["schema"])

    def timeline(self) -> "pd.DataFrame":
        """`timeline.csv` as a data frame, in the order of the pass within a case and mode; empty in an older folder."""
        return read_table(self.path / "timeline.csv", TIMELINE_COLUMNS, self.meta["schema"])

    def predictions(self) -> "pd.DataFrame":
        """`predictions.csv` as a data frame: one row for each case and device; empty in an older folder."""
        frame = read_table(self.path / "predictions.csv", PREDICTION_COLUMNS, self.meta["schema"])
        for mode in MODES:
            column = f"latency_{mode}_predicted_notes"
            frame[column] = [_warnings(text) for text in frame[column]]
        return frame

    @contextmanager
    def _written(self) -> Iterator[None]:
        if self.meta["schema"] < SCHEMA:
            raise UsageError(
                f"{self.path} was written by an older ctxbench: its rows lack columns of today's (schema "
                f"{self.meta['schema']}, now {SCHEMA}), so it cannot be resumed; start a new run"
            )
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write to {self.path}: {error.strerror or error}") from None


def read_records(
    path: Path, schema: int, optional: Collection[str] = (), *, columns: Mapping[str, Column] | None = None
) -> "pd.DataFrame":
    """The records of a CSV file that was written under a schema; columns that came later are empty, if it lacks them.

    So are the `optional` ones. `columns` are those of the file (default: of `records.csv`).
    """
    frame = read_table(path, columns or tables()["records.csv"], schema, optional)
    frame["warnings"] = [_warnings(text) for text in frame["warnings"]]
    _check_identity(frame, path)
    return frame


def _check_identity(frame: "pd.DataFrame", path: Path) -> None:
    """UsageError with the line for a record that is there twice, or whose hyper-parameters are no JSON object."""
    names = [name for name in ("case", "process") if name in frame]
    seen: Counter[tuple[Any, ...]] = Counter()
    for line, (text, *key) in enumerate(zip(frame["hparams"], *(frame[name] for name in names), strict=True), 2):
        seen[tuple(key)] += 1
        if seen[tuple(key)] > 1:
            raise UsageError(f"{path}, line {line}: {names[0]} is {str(key[0])!r}; it stands in an earlier line too")
        if not _is_object(text):
            raise UsageError(f"{path}, line {line}: hparams is {text!r}, not an object in JSON")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _prediction_lines(case: str, predicted: Iterable[PredictedTime]) -> Iterator[str]:
    """The lines of `predictions.csv`: both modes of a device in one."""
    rows: dict[str, dict[str, Any]] = {}
    for each in predicted:
        row = rows.setdefault(each.target, {"case": case, "target": each.target, "title": each.title})
        for end in ("ms", "low_ms", "high_ms"):
            row[f"latency_{each.mode}_predicted_{end}"] = f"{getattr(each, end):.4g}"
        row[f"latency_{each.mode}_predicted_notes"] = json.dumps(each.notes)
    for row in rows.values():
        yield csv_line(row.get(name) for name in PREDICTION_COLUMNS)


def _warnings(text: str) -> list[str]:
    """A list in JSON; before schema 3 sentences joined by semicolons."""
    if text.startswith("["):
        try:
            return [str(sentence) for sentence in json.loads(text)]
        except json.JSONDecodeError:
            pass
    return text.split("; ") if text else []


def run_folders(path: Path) -> list[Path]:
    """The run folder `path`, or those inside it: a run on a cluster has one for each kind of device."""
    inside = sorted(each.parent for each in path.glob("*/run.json"))
    return inside if inside and not (path / "run.json").exists() else [path]


def default_path(suite: str) -> Path:
    """`results/<suite>-<time>` below the working folder, the time in UTC to the second, unused so far."""
    stem = f"{suite}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
    path = Path("results") / stem
    number = 2
    while path.exists():
        path = Path("results") / f"{stem}-{number}"
        number += 1
    return path
