"""The run folder: each process is written as it finishes, one row a case is made from its processes."""

import csv
import glob
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.base import disk
from ctxbench.base.errors import AlteredRun, UsageError
from ctxbench.base.load import doubt
from ctxbench.base.notes import BROKEN, Note
from ctxbench.model.messages import Sample, TimelineStep
from ctxbench.model.record import Record, columns
from ctxbench.results.csv_file import csv_line, csv_rows, fingerprint, mend, read_columns, stored
from ctxbench.results.rows import rows_in
from ctxbench.results.run_meta import check_meta, require
from ctxbench.results.tables import (
    STREAMS,
    add_derived,
    add_medians,
    medians,
    read_processes,
    read_records,
    tables,
    types,
)
from ctxbench.table.numbers import Numbers

if TYPE_CHECKING:
    import pandas as pd

# Of run folders: it changes only when a column or a key of run.json changes its meaning.
SCHEMA = 10


@dataclass
class RunFolder:
    """A folder `runs/<suite>-<time>/` with the CSV files of `tables` and `run.json`.

    What a process measured is a row of `processes.csv`, and `records.csv` is made from these. The samples and timeline
    of a process are on disk before its row is, and that is one `write` followed by `fsync`: a folder whose writer was
    killed holds whole processes, possibly with rows of an unfinished one in the other tables, which `recover` removes.
    A table may lack columns of today's, which are then empty, and have others, which are left as they are. One of
    a run that ended may be compressed, as `processes.csv.gz`.
    """

    path: Path
    meta: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, Any]) -> "RunFolder":
        """Make the folder and its empty tables. UsageError if it exists with a run inside or cannot be written."""
        disk.make_folder(path)
        if found := [name for name in ("run.json", *tables()) if os.path.lexists(stored(path / name))]:
            raise UsageError(
                f"{path} already holds a run ({found[0]}); continue it with ctxbench resume {path}, or choose another "
                "--out"
            )
        if os.path.lexists(path / "log.txt"):
            raise UsageError(f"{path} already holds a log.txt, in which a run writes; choose another --out")
        folder = cls(path, {**meta, "schema": SCHEMA})
        folder.save_meta()
        folder._make_tables()
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder, for reading or resuming. UsageError if it is none or of an unknown schema."""
        if os.path.isfile(path):
            raise UsageError(f"{path} is a file; name the run folder that it is in, {path.parent}")
        try:
            meta = disk.read_json(path / "run.json")
        except disk.NoFile:
            raise UsageError(f"{path} is no run folder: it has no run.json") from None
        schema = meta.get("schema") if isinstance(meta, dict) else None
        if type(schema) is not int or schema != SCHEMA:  # 10.0 is none
            raise UsageError(
                f"{path / 'run.json'} has schema {schema!r}, and this ctxbench reads schema {SCHEMA}: read the run "
                "with the ctxbench that wrote it, or measure it again"
            )
        check_meta(meta, path / "run.json")
        return cls(path, meta)

    def require(self, keys: Iterable[str]) -> None:
        """UsageError if `run.json` lacks one of these keys of `run_meta`."""
        require(self.meta, self.path / "run.json", keys)

    def altered(self) -> str:
        """A sentence that says which tables are not those that the run wrote; "" if all are, or nothing tells.

        Streams may be left out of a folder that is passed on.
        """
        found = []
        for name in tables():
            if name in STREAMS and not os.path.lexists(stored(self.path / name)):
                continue
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
        with disk.writing(self.path):
            self.meta |= changes
            disk.replace(self.path / "run.json", (json.dumps(self.meta, indent=2) + "\n").encode())

    def finish(self, state: str) -> None:
        """Write into `run.json` how the run ended, and which tables it has left."""
        self.save_meta(state=state, tables={name: fingerprint(self.path / name) for name in tables()})

    def keep_imports(self, row: str, files: Mapping[str, str]) -> list[str]:
        """Keep in `run.json` by which files (their SHA-256) a row was measured; those that the run knows as others."""
        rows: dict[str, dict[str, str]] = self.meta.get("imports") or {}
        known = {each["file"]: each["sha256"] for each in (self.meta.get("sources") or {}).values()}
        for each in rows.values():
            known |= each
        if files.keys() - rows.get(row, {}).keys():
            first = {file: known.get(file, sha256) for file, sha256 in files.items()}
            self.save_meta(imports={**rows, row: {**rows.get(row, {}), **first}})
        return [file for file, sha256 in files.items() if known.get(file, sha256) != sha256]

    def append(
        self,
        number: int,
        record: Record,
        samples: Mapping[str, Iterable[Sample]],
        timelines: Mapping[str, Iterable[TimelineStep]] | None = None,
    ) -> None:
        """Write what process `number` of a case found: samples, predicted memory, then its row.

        The call that built its module is in `run.json` with the next facts.
        """
        if record.built:
            self.meta.setdefault("built", {})[record.case] = record.built
        sampled = [
            {"case": record.case, "process": number, "mode": mode, "index": i, "at_s": f"{s.at_s:.6f}",
             "passes": s.passes, "ms": repr(s.ms)}
            for mode, stream in samples.items()
            for i, s in enumerate(stream)
        ]  # fmt: skip
        steps = [
            {"case": record.case, "mode": mode, **asdict(step)}
            for mode, timeline in (timelines or {}).items()
            for step in timeline
        ]
        with disk.writing(self.path):
            self._append("samples.csv", sampled)
            self._append("timeline.csv", steps)
            self._append("processes.csv", [{**record.row(), "process": number}])

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows to a table, in the order of its own columns."""
        path = self.path / name
        header = next(csv.reader([disk.first_line(path)]))
        disk.append(path, disk.encoded("".join(csv_line(row.get(column) for column in header) for row in rows)))

    def write_records(self, records: Iterable[Record]) -> None:
        """Write `records.csv` whole, with notes on what this run knows of a row: disturbed, broken or marked."""
        broken, marks = set(self.meta.get("broken") or ()), self.meta.get("marks") or {}
        records = list(records)
        for record in records:
            record.note(*doubt(record.others_share), *[Note(BROKEN)] * (record.module in broken))
            record.note(*(Note("mark", {"text": text}) for text in marks.get(record.module, ())))
        lines = [csv_line(columns()), *(csv_line(record.row().values()) for record in records)]
        with disk.writing(self.path):
            disk.replace(self.path / "records.csv", disk.encoded("".join(lines)))

    def finished(self) -> dict[str, dict[int, Record]]:
        """Records of the finished processes of each case, by their numbers."""
        found: dict[str, dict[int, Record]] = {}
        for row in read_processes(self.path / "processes.csv"):
            found.setdefault(row["case"], {})[row["process"]] = Record.of_row(row)
        return found

    def log(self, case: str, text: str) -> None:
        """Keep what a case printed or raised, for a person to read: `log.txt`. Paths are from the working folder."""
        text = text.replace(f"{Path.cwd()}{os.sep}", "").rstrip()
        with disk.writing(self.path):
            disk.append(self.path / "log.txt", disk.encoded(f"== {case}\n{text}\n\n"))

    def recover(self) -> list[str]:
        """Remove what a killed writer left half done: lines that are torn, rows of a process that did not finish.

        A table is unpacked, and gets the columns that it lacks. Returns a sentence for each table with torn lines
        before its last.
        UsageError for a table that is damaged in another way.
        """
        self._make_tables()
        with disk.writing(self.path):
            wanted = tables()
            torn = {name: mend(self.path / name, [each.name for each in wanted[name]]) for name in wanted}
            for name, header in wanted.items():
                read_columns(self.path / name, header)
                self._widen(name)
            finished = self.finished()
            for name in wanted:
                self._keep(name, lambda row: int(row.get("process", 0)) in finished.get(row["case"], ()))
        return [f"{self.path / name}: {count} torn lines were removed" for name, count in torn.items() if count]

    def drop(self, cases: set[str]) -> None:
        """Remove what the given cases left in every table, so that they can be measured again."""
        with disk.writing(self.path):
            for name in tables():
                self._keep(name, lambda row: row["case"] not in cases)

    def _make_tables(self) -> None:
        """Unpack each table that is compressed, and write the header of each that is not there."""
        with disk.writing(self.path):
            for name, header in tables().items():
                path = self.path / name
                if (packed := stored(path)) != path:
                    disk.unpack(packed, path)
                elif not path.exists():
                    disk.append(path, csv_line(each.name for each in header).encode())

    def _widen(self, name: str) -> None:
        """Add the columns that a table lacks, empty, behind its own."""
        header, rows = csv_rows(self.path / name)
        added = [each.name for each in tables()[name] if each.name not in header]
        if added:
            lines = [[*header, *added], *([*row, *[""] * len(added)] for row in rows)]
            disk.replace(self.path / name, disk.encoded("".join(map(csv_line, lines))))

    def _keep(self, name: str, wanted: Callable[[Mapping[str, str]], bool]) -> None:
        """Rewrite a table without the rows that are not wanted, if it has any."""
        header, rows = csv_rows(self.path / name)
        kept = [row for row in rows if wanted(dict(zip(header, row, strict=True)))]
        if len(kept) < len(rows):
            disk.replace(self.path / name, disk.encoded("".join(map(csv_line, [header, *kept]))))

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `records.csv`, with a list of notes each, and the quantities that derive from others.

        Of each time, a column such as `latency_infer_processes` has the medians of its processes by their numbers;
        none for a reused case, whose rounds are not those of the others.
        """
        rows = read_records(self.path / "records.csv")
        add_medians(rows, self.path / "processes.csv", (self.meta.get("reused") or {}).get("cases", ()))
        add_derived(rows)
        return rows

    def frame(self) -> "pd.DataFrame":
        """The rows as a data frame: Int64 for counts, float64 for times, string for text."""
        rows = self.rows()
        names = dict.fromkeys([*columns(), *medians(), *types()])
        return Numbers.of_rows(rows, names, types()).frame

    @property
    def failed(self) -> int:
        """Number of cases with another status than `ok`."""
        return sum(row["status"] != "ok" for row in self.rows())

    def samples(self) -> "pd.DataFrame":
        """`samples.csv` as a data frame, in time order within a case and mode; the mode `control` is the control's."""
        return Numbers(*self._stream("samples.csv")).frame

    def timeline(self) -> "pd.DataFrame":
        """`timeline.csv` as a data frame, in the order of the pass within a case and mode."""
        return Numbers(*self._stream("timeline.csv")).frame

    def stream(self, name: str) -> list[dict[str, Any]]:
        """The rows of one of `STREAMS`; none if the folder was kept without it."""
        return rows_in(self._stream(name)[0])

    def _stream(self, name: str) -> tuple[Mapping[str, Sequence[Any]], Mapping[str, type]]:
        """The columns of a table of streams, and their types."""
        header = {each.name: each for each in tables()[name]}
        there = os.path.lexists(stored(self.path / name))
        found = read_columns(self.path / name, header.values()) if there else {each: [] for each in header}
        return found, {each.name: each.type for each in header.values()}


def run_folders(path: Path) -> list[Path]:
    """The run folder `path`, or those inside it."""
    if os.path.lexists(path / "run.json"):
        return [path]
    return sorted(Path(each).parent for each in glob.glob(f"{glob.escape(str(path))}/*/run.json")) or [path]


def default_path(suite: str) -> Path:
    """`runs/<suite>-<time>` below the working folder, the time in UTC to the second, unused so far.

    It is not `results`, which holds this repository's committed runs.
    """
    stem = f"{suite}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
    path = Path("runs") / stem
    number = 2
    while os.path.lexists(path):
        path = Path("runs") / f"{stem}-{number}"
        number += 1
    return path
