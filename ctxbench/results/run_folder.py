"""The run folder: each process is written as it finishes, one row a case is made from its processes."""

import csv
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.errors import UsageError
from ctxbench.messages import PredictedTime, Sample, TimelineStep
from ctxbench.metrics.base import Column
from ctxbench.mode import MODES
from ctxbench.results.csv_file import append_text, csv_line, read_table, replace_file
from ctxbench.results.record import Record, columns

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 8


def _columns(since: int = 1, **types: type[int] | type[float] | type[str]) -> dict[str, Column]:
    return {name: Column(name, kind, since) for name, kind in types.items()}


SAMPLE_COLUMNS = {
    **_columns(case=str),
    **_columns(since=4, process=int),
    **_columns(mode=str, index=int, at_s=float, passes=int, ms=float),
}

_PROCESS = Column("process", int, 4)
TIMELINE_COLUMNS = _columns(since=2, case=str, mode=str, step=int, phase=str, op=str, bytes=int)
PREDICTION_COLUMNS = {
    **_columns(since=5, case=str, target=str, title=str),
    **{
        f"latency_{mode}_predicted_{end}": Column(f"latency_{mode}_predicted_{end}", kind, 5)
        for mode in MODES
        for end, kind in {"ms": float, "low_ms": float, "high_ms": float, "notes": str}.items()
    },
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
        return cls(path, meta)

    def save_meta(self, **changes: Any) -> None:
        """Rewrite `run.json` whole, through a rename."""
        with self._written():
            self.meta |= changes
            temporary = self.path / "run.json.part"
            temporary.write_text(json.dumps(self.meta, indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, self.path / "run.json")

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
            replace_file(self.path / "records.csv", "".join(lines).encode())

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

    def recover(self) -> None:
        """Remove what a killed writer left half done: a torn last line, rows of a process that did not finish."""
        self._make_tables()
        with self._written():
            for name in tables():
                written = (self.path / name).read_bytes()
                whole = written[: written.rfind(b"\n") + 1]
                if whole != written:
                    replace_file(self.path / name, whole)
            finished = self.finished()
            for name in tables():
                self._keep(name, lambda row: int(row.get("process", 0)) in finished.get(row["case"], ()))

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
            replace_file(self.path / name, "".join(map(csv_line, [header, *kept])).encode())

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
            frame[column] = [json.loads(text or "[]") for text in frame[column]]
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
    return frame


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
