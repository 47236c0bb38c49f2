"""Record and the run folder: one row a case, written as it finishes, read back with the right types."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from ctxbench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
STATUSES = ("ok", "oom", "timeout", "error", "crashed", "nan", "unsupported")
MODES: tuple[Literal["infer"], Literal["train"]] = ("infer", "train")


@dataclass
class Record:
    """What came out for one case. None: not measured, or not known.

    Units are in the names: `_ms` milliseconds a pass, `_bytes` bytes, `_s` seconds, `_j` joules a pass. `params` and
    the `macs` columns are exact integers. `latency_*_low_ms` and `latency_*_high_ms` bound the median with the
    probability `latency_*_confidence`; `drift` is the second half's median over the first half's, less one.
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


@dataclass(frozen=True)
class Sample:
    """One timed block: `ms` milliseconds a pass over `passes` passes, finished `at_s` seconds after the first began."""

    at_s: float
    passes: int
    ms: float


@dataclass
class RunFolder:
    """A folder `results/<suite>-<time>/` with `records.csv`, `samples.csv` and `run.json`.

    A case's samples are on disk before its record is, and a record is one `write` followed by `fsync`: a folder whose
    writer was killed holds whole records, possibly with samples of an unfinished case, which `recover` removes.
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
        folder = cls(path, dict(meta))
        with folder._written():
            path.mkdir(parents=True, exist_ok=True)
            (path / "records.csv").write_text(_csv_line(COLUMNS), encoding="utf-8")
            (path / "samples.csv").write_text(_csv_line(SAMPLE_COLUMNS), encoding="utf-8")
        folder.save_meta()
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder, for reading or resuming. UsageError if it is none or of another schema."""
        try:
            meta = json.loads((path / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{path} is no run folder: it has no run.json") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path / 'run.json'} is damaged: {error}") from None
        if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
            found = meta.get("schema") if isinstance(meta, dict) else None
            raise UsageError(f"{path} has schema {found!r}; this ctxbench reads schema {SCHEMA}")
        return cls(path, meta)

    def save_meta(self, **changes: Any) -> None:
        """Rewrite `run.json` whole, through a rename."""
        self.meta |= {"schema": SCHEMA, **changes}
        with self._written():
            temporary = self.path / "run.json.part"
            temporary.write_text(json.dumps(self.meta, indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, self.path / "run.json")

    def append(self, record: Record, samples: Mapping[str, Iterable[Sample]]) -> None:
        """Write a case: its samples first, then its record."""
        rows = [
            _csv_line([record.case, mode, i, f"{s.at_s:.6f}", s.passes, repr(s.ms)])
            for mode, stream in samples.items()
            for i, s in enumerate(stream)
        ]
        with self._written():
            _append(self.path / "samples.csv", "".join(rows))
            _append(self.path / "records.csv", _csv_line(record.row()))

    def log(self, case: str, text: str) -> None:
        """Keep what a case printed or raised, for a person to read: `log.txt`."""
        with self._written():
            _append(self.path / "log.txt", f"== {case}\n{text.rstrip()}\n\n")

    def recover(self) -> None:
        """Remove what a killed writer left half done: a torn last line, samples of a case without a record."""
        with self._written():
            for name in ("records.csv", "samples.csv"):
                written = (self.path / name).read_bytes()
                whole = written[: written.rfind(b"\n") + 1]
                if whole != written:
                    _replace(self.path / name, whole)
            kept = self.cases()
            content = (self.path / "samples.csv").read_text(encoding="utf-8")
            rows = list(csv.reader(io.StringIO(content)))
            text = "".join(_csv_line(row) for i, row in enumerate(rows) if i == 0 or row[0] in kept)
            if text != content:
                _replace(self.path / "samples.csv", text.encode())

    def drop(self, cases: set[str]) -> None:
        """Remove the records and samples of the given cases, so that they can be measured again."""
        with self._written():
            for name in ("records.csv", "samples.csv"):
                rows = list(csv.reader(io.StringIO((self.path / name).read_text(encoding="utf-8"))))
                text = "".join(_csv_line(row) for i, row in enumerate(rows) if i == 0 or row[0] not in cases)
                _replace(self.path / name, text.encode())

    def arrange(self, order: Sequence[str]) -> None:
        """Put the records into the given order of cases, as a run without an interruption has them."""
        place = {case: index for index, case in enumerate(order)}
        with self._written():
            path = self.path / "records.csv"
            header, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
            rows.sort(key=lambda row: place.get(row[0], len(place)))
            _replace(path, "".join(map(_csv_line, [header, *rows])).encode())

    def cases(self) -> set[str]:
        """The ids of the cases that have a record."""
        with (self.path / "records.csv").open(newline="", encoding="utf-8") as file:
            return {row["case"] for row in csv.DictReader(file)}

    def frame(self) -> "pd.DataFrame":
        """`records.csv` as a data frame: Int64 for counts, float64 for times, string for text."""
        return read_table(self.path / "records.csv", COLUMNS)

    def samples(self) -> "pd.DataFrame":
        """`samples.csv` as a data frame, in time order within a case and mode."""
        return read_table(self.path / "samples.csv", SAMPLE_COLUMNS)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write to {self.path}: {error.strerror or error}") from None


def _csv_line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _append(path: Path, text: str) -> None:
    """Append all of `text` or, if the disk fills, none of it."""
    with path.open("ab") as file:
        start = file.tell()
        try:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, start)
            raise


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def read_table(path: Path, columns: Mapping[str, type]) -> "pd.DataFrame":
    """Read a CSV of a run folder. UsageError names the file and the line that is torn or holds a cell of another type.

    Columns that are not asked for are left out.
    """
    import pandas as pd

    header, rows = _csv_rows(path)
    missing = [name for name in columns if name not in header]
    if missing:
        raise UsageError(f"{path} lacks the column {missing[0]!r}")
    cells = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
    return pd.DataFrame({name: _typed(name, cells[name], kind, path) for name, kind in columns.items()})


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows, each as long as the header. UsageError names the first line that is not."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no {path}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: the text is not UTF-8; save the file as UTF-8") from None
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        raise UsageError(f"{path}, line {line}: the line is torn; remove it, or continue the run with --resume")
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    rows = []
    for row in reader:
        if len(row) != len(header):
            raise UsageError(f"{path}, line {reader.line_num}: {len(row)} cells where the header has {len(header)}")
        rows.append(row)
    return header, rows


def _typed(name: str, cells: Sequence[str], kind: type, path: Path) -> "pd.Series[Any]":
    import pandas as pd

    if kind is str:
        return pd.Series(cells, dtype="string")
    known: dict[str, Any] = {"": None}
    for text in dict.fromkeys(cells):
        try:
            known[text] = kind(text) if text else None
            if kind is int and text and not -(2**63) <= known[text] < 2**63:
                raise ValueError
        except ValueError:
            wanted = "an integer of 64 bits" if kind is int else "a number"
            raise UsageError(f"{path}, line {cells.index(text) + 2}: {name} is {text!r}, not {wanted}") from None
    # Counts go to Int64 as objects, not through float64: above 2^53 they stay exact.
    return pd.Series([known[text] for text in cells], dtype="Int64" if kind is int else "float64")


def default_path(suite: str) -> Path:
    """`results/<suite>-<time>` below the working folder, the time in UTC to the second, unused so far."""
    stem = f"{suite}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
    path = Path("results") / stem
    number = 2
    while path.exists():
        path = Path("results") / f"{stem}-{number}"
        number += 1
    return path
