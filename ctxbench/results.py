"""Record and the run folder: one row a case, written as it finishes, read back with the right types."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from ctxbench.csv_file import append_text, csv_line, read_table, replace_file
from ctxbench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 2
STATUSES = ("ok", "oom", "timeout", "error", "crashed", "nan", "unsupported")
MODES: tuple[Literal["infer"], Literal["train"]] = ("infer", "train")


@dataclass
class Record:
    """What came out for one case. None: not measured, or not known.

    Units are in the names: `_ms` milliseconds a pass, `_bytes` bytes, `_s` seconds, `_j` joules a pass. `params` and
    the `macs` columns are exact integers. `latency_*_low_ms` and `latency_*_high_ms` bound the median with the
    probability `latency_*_confidence`; `drift` is the second half's median over the first half's, less one.
    `control_ms` is the control workload's median in the process that measured the latencies, before, between and after
    them; its interval is of 95 %, or the least and the largest sample where too few or too alike for that.
    """

    case: str
    module: str
    title: str
    family: str
    reference: str
    hparams: str
    batch: int
    channels: int
    height: int
    width: int
    dtype: str
    memory_format: str
    execution: str
    threads: int | None
    device: str
    status: str = "ok"
    message: str = ""
    warnings: str = ""
    params: int | None = None
    macs: int | None = None
    macs_counter: str | None = None
    macs_matmul: int | None = None
    macs_formula: int | None = None
    macs_uncounted: str | None = None
    memory_infer_bytes: int | None = None
    memory_train_bytes: int | None = None
    memory_infer_predicted_bytes: int | None = None
    memory_train_predicted_bytes: int | None = None
    memory_predicted_for: str | None = None
    memory_marks: str | None = None
    latency_infer_ms: float | None = None
    latency_infer_low_ms: float | None = None
    latency_infer_high_ms: float | None = None
    latency_infer_confidence: float | None = None
    latency_infer_samples: int | None = None
    latency_infer_stop: str | None = None
    latency_infer_drift: float | None = None
    latency_infer_autocorrelation: float | None = None
    latency_infer_outliers: int | None = None
    latency_train_ms: float | None = None
    latency_train_low_ms: float | None = None
    latency_train_high_ms: float | None = None
    latency_train_confidence: float | None = None
    latency_train_samples: int | None = None
    latency_train_stop: str | None = None
    latency_train_drift: float | None = None
    latency_train_autocorrelation: float | None = None
    latency_train_outliers: int | None = None
    control_ms: float | None = None
    control_low_ms: float | None = None
    control_high_ms: float | None = None
    compile_infer_s: float | None = None
    compile_train_s: float | None = None
    energy_infer_j: float | None = None
    energy_train_j: float | None = None
    matmul_peak_macs_per_s: float | None = None
    conditions: str | None = None
    elapsed_s: float | None = None

    def row(self) -> list[str]:
        """The CSV cells; line breaks become spaces so that a record is one line."""
        values = (getattr(self, name) for name in COLUMNS)
        return ["" if value is None else " ".join(str(value).splitlines()) for value in values]


def _column_types() -> dict[str, type]:
    hints = get_type_hints(Record)
    return {
        f.name: next(t for t in get_args(hints[f.name]) if t is not type(None))
        if isinstance(hints[f.name], UnionType)
        else hints[f.name]
        for f in fields(Record)
    }


COLUMNS: dict[str, type] = _column_types()
SAMPLE_COLUMNS: dict[str, type] = {"case": str, "mode": str, "index": int, "at_s": float, "passes": int, "ms": float}
TIMELINE_COLUMNS: dict[str, type] = {"case": str, "mode": str, "step": int, "phase": str, "op": str, "bytes": int}
TABLES = {"records.csv": COLUMNS, "samples.csv": SAMPLE_COLUMNS, "timeline.csv": TIMELINE_COLUMNS}
# What a run of schema 1 lacks, besides timeline.csv.
SINCE_2 = ("control_ms", "control_low_ms", "control_high_ms")
# What `Sample`s are of, besides a mode's passes.
CONTROL = "control"


@dataclass(frozen=True)
class Sample:
    """One timed block: `ms` milliseconds a pass over `passes` passes, finished `at_s` seconds after the first began."""

    at_s: float
    passes: int
    ms: float


@dataclass(frozen=True)
class Held:
    """The bytes that a pass is predicted to hold at its `step`-th operator call, in the `phase` forward or backward."""

    step: int
    phase: str
    op: str
    bytes: int


@dataclass
class RunFolder:
    """A folder `results/<suite>-<time>/` with `records.csv`, `samples.csv`, `timeline.csv` and `run.json`.

    A case's samples and timeline are on disk before its record is, and a record is one `write` followed by `fsync`: a
    folder whose writer was killed holds whole records, possibly with rows of an unfinished case in the other tables,
    which `recover` removes. A folder of an older schema is read, never written to.
    """

    path: Path
    meta: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, Any]) -> "RunFolder":
        """Make the folder and its empty tables. UsageError if it exists with a run inside or cannot be written."""
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file; --out takes a folder")
        if (path / "run.json").exists():
            raise UsageError(f"{path} already holds a run; continue it with --resume {path}, or choose another --out")
        folder = cls(path, {**meta, "schema": SCHEMA})
        with folder._written():
            path.mkdir(parents=True, exist_ok=True)
            for name, columns in TABLES.items():
                (path / name).write_text(csv_line(columns), encoding="utf-8")
        folder.save_meta()
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder, for reading or resuming. UsageError if it is none or of an unknown schema."""
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
                "upgrade with pip install --upgrade ctxbench"
            )
        return cls(path, meta)

    def save_meta(self, **changes: Any) -> None:
        """Rewrite `run.json` whole, through a rename."""
        with self._written():
            self.meta |= changes
            temporary = self.path / "run.json.part"
            temporary.write_text(json.dumps(self.meta, indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, self.path / "run.json")

    def append(self, record: Record, samples: Mapping[str, Iterable[Sample]]) -> None:
        """Write a case: its samples first, then its record."""
        rows = [
            csv_line([record.case, mode, i, f"{s.at_s:.6f}", s.passes, repr(s.ms)])
            for mode, stream in samples.items()
            for i, s in enumerate(stream)
        ]
        with self._written():
            append_text(self.path / "samples.csv", "".join(rows))
            append_text(self.path / "records.csv", csv_line(record.row()))

    def append_timeline(self, case: str, timelines: Mapping[str, Iterable[Held]]) -> None:
        """Write the held bytes of a case, mode by mode; its record is to follow."""
        rows = [
            csv_line([case, mode, held.step, held.phase, held.op, held.bytes])
            for mode, timeline in timelines.items()
            for held in timeline
        ]
        with self._written():
            append_text(self.path / "timeline.csv", "".join(rows))

    def log(self, case: str, text: str) -> None:
        """Keep what a case printed or raised, for a person to read: `log.txt`."""
        with self._written():
            append_text(self.path / "log.txt", f"== {case}\n{text.rstrip()}\n\n")

    def recover(self) -> None:
        """Remove what a killed writer left half done: a torn last line, rows of a case without a record."""
        with self._written():
            for name in TABLES:
                written = (self.path / name).read_bytes()
                whole = written[: written.rfind(b"\n") + 1]
                if whole != written:
                    replace_file(self.path / name, whole)
            kept = self.cases()
            for name in TABLES:
                self._keep(name, lambda case: case in kept)

    def drop(self, cases: set[str]) -> None:
        """Remove what the given cases left in every table, so that they can be measured again."""
        with self._written():
            for name in TABLES:
                self._keep(name, lambda case: case not in cases)

    def _keep(self, name: str, wanted: Callable[[str], bool]) -> None:
        """Rewrite a table without the rows of the cases that are not wanted, if it has any."""
        header, *rows = csv.reader(io.StringIO((self.path / name).read_text(encoding="utf-8")))
        kept = [row for row in rows if wanted(row[0])]
        if len(kept) < len(rows):
            replace_file(self.path / name, "".join(map(csv_line, [header, *kept])).encode())

    def arrange(self, order: Sequence[str]) -> None:
        """Put the records into the given order of cases, as a run without an interruption has them."""
        place = {case: index for index, case in enumerate(order)}
        with self._written():
            path = self.path / "records.csv"
            header, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
            rows.sort(key=lambda row: place.get(row[0], len(place)))
            replace_file(path, "".join(map(csv_line, [header, *rows])).encode())

    def cases(self) -> set[str]:
        """The ids of the cases that have a record."""
        with (self.path / "records.csv").open(newline="", encoding="utf-8") as file:
            return {row["case"] for row in csv.DictReader(file)}

    def frame(self) -> "pd.DataFrame":
        """`records.csv` as a data frame: Int64 for counts, float64 for times, string for text."""
        return read_table(self.path / "records.csv", COLUMNS, SINCE_2 if self.meta["schema"] < SCHEMA else ())

    def samples(self) -> "pd.DataFrame":
        """`samples.csv` as a data frame, in time order within a case and mode; the mode `control` is the control's."""
        return read_table(self.path / "samples.csv", SAMPLE_COLUMNS)

    def timeline(self) -> "pd.DataFrame":
        """`timeline.csv` as a data frame, in the order of the pass within a case and mode; empty in an older folder."""
        if self.meta["schema"] < SCHEMA:
            import pandas as pd

            return pd.DataFrame(columns=[*TIMELINE_COLUMNS])
        return read_table(self.path / "timeline.csv", TIMELINE_COLUMNS)

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


def default_path(suite: str) -> Path:
    """`results/<suite>-<time>` below the working folder, the time in UTC to the second, unused so far."""
    stem = f"{suite}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
    path = Path("results") / stem
    number = 2
    while path.exists():
        path = Path("results") / f"{stem}-{number}"
        number += 1
    return path
