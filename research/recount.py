"""Counts params, MACs, predicted memory and predicted times of the committed runs again.

A static run with another number is run anew by its command. In a measured run the counted columns and their notes are
written anew and all else is kept; `counted` in its `run.json` has the commit and the day of the code that counted.
Run, with timm installed (`make extras`) and all changes committed: python research/recount.py, then make report
"""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stamp import stamp

from ctxbench.base import disk
from ctxbench.base.notes import LACKS, dumped, parsed
from ctxbench.devices import META
from ctxbench.engine.in_process import InProcess
from ctxbench.engine.one_process import CaseOutcome, Plan, measure_case
from ctxbench.executions import execution
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import from_columns
from ctxbench.model.metrics import metrics
from ctxbench.model.record import Record
from ctxbench.plugin import plugins
from ctxbench.results.csv_file import csv_line, csv_rows, stored
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import STREAMS, read_records

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
# Two predicted times that differ by less are the same: another processor may add in another order.
CLOSE = 1e-6
# The notes on what is counted.
COUNTING = ("macs", "memory", "predict")
MEASURED = {"no_peak_autocast", "no_memory_autocast"}
CODES = {
    "params_differ",
    "params_made",
    "complex_params",
    LACKS,
    *(code for name in COUNTING for code in plugins()[name].notes),
} - MEASURED
# Blocks of plugins that are in ctxbench-science today.
_MOVED = re.compile(r"^ctxbench\.plugins\.(?=(numerics|recall|stability)\.)")
# What was counted, by what decides it.
counts: dict[str, CaseOutcome] = {}


@dataclass(frozen=True)
class Row:
    """A row of a committed run, its case without what counts do not depend on, and the columns that hold counts."""

    run: Path
    stored: Mapping[str, Any]
    case: Case
    plan: Plan
    columns: tuple[str, ...]

    def outcome(self) -> CaseOutcome:
        """The record and memory over a pass by today's code; rows that are equal in what decides them share them."""
        measure = self.plan.measure
        key = f"{self.case.id} {self.case.reference} {self.plan.metrics} {self.plan.counter} {measure.memory_device}"
        if key not in counts:
            counts[key] = measure_case(self.case, self.plan, InProcess())
        return counts[key]

    def counted(self) -> Record:
        return self.outcome().record

    def differing(self) -> list[str]:
        """The numbers that are others today; the reason where the row cannot be counted."""
        now = self.counted()
        if now.status != "ok":
            return [now.message]
        pairs = {name: (self.stored[name], now.get(name)) for name in self.columns}
        return [f"{name} {then} then, {today} now" for name, (then, today) in pairs.items() if not _same(then, today)]


def _same(then: Any, today: Any) -> bool:
    if isinstance(then, float) and isinstance(today, float):
        return math.isclose(then, today, rel_tol=CLOSE)
    return (then or None) == (today or None)


def runs(folder: Path = RESULTS) -> list[Path]:
    """The committed run folders."""
    return sorted(path.parent for path in folder.glob("**/run.json"))


def rows_of(run: Path) -> Iterator[Row]:
    """The rows of a run, each with the columns that hold counts in any of them."""
    meta, stored = RunFolder.open(run).meta, read_records(run / "records.csv")
    measure = Measure(memory_device=meta["definition"]["measure"].get("memory_device", "cuda"))
    counted = [
        name
        for name in meta["metrics"]
        if metrics()[name].count and all(each.origin != "measured" for each in metrics()[name].quantities)
    ]
    plan = Plan(measure, counted, meta["counter"])
    filled = {name for row in stored for name, value in row.items() if value not in (None, "")}
    for row in stored:
        times = row["latency_origin"] == "predicted"
        way = row["execution"] if times or execution(row["execution"]).no_memory else "eager"
        where = {"device": row["device"] if times else META, "execution": way, "threads": None}
        hparams = json.loads(row["hparams"])
        case = Case(
            row["module"], _MOVED.sub("ctxbench_science.", row["reference"]), hparams, **{**from_columns(row), **where}
        )
        yield Row(run, row, case, plan, tuple(name for name in sorted(filled) if _is_counted(name, times)))


def _is_counted(name: str, times: bool) -> bool:
    """Return whether a column holds what is counted; those of times do where they are predicted."""
    alone, whole = name.startswith("alone_"), name.removeprefix("alone_")
    memory = whole.startswith("memory_") and (alone or "predicted" in whole or whole == "memory_marks")
    return (
        whole == "params"
        or whole.startswith("macs")
        or memory
        or (times and name.startswith("latency_") and name.endswith("_ms"))
    )


def stale(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row with another number than today's code counts."""
    found = [(row, row.differing()) for row in rows]
    return [f"{row.run.name}, {row.stored['case']}: {'; '.join(each)}" for row, each in found if each]


def run_anew(run: Path, command: str) -> None:
    """Runs the command of a static run again, in the place of the run; without the streams, which git does not keep."""
    program, *arguments = shlex.split(command)
    packed = [*run.glob("*.csv.gz")]
    shutil.rmtree(run)
    subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=ROOT, check=True)
    for name in STREAMS:
        (run / name).unlink()
    pack(packed)


def pack(packed: Iterable[Path]) -> None:
    """Compresses tables that were compressed, and have been written anew."""
    for path in packed:
        if path.with_suffix("").exists():
            subprocess.run(["gzip", "-9nf", path.with_suffix("")], check=True)


def write_anew(run: Path, evidence: Mapping[str, str]) -> None:
    """Writes the counted columns of a measured run as today's code counts them, and which commit that is."""
    rows = {row.stored["case"]: row for row in rows_of(run)}
    packed = [*run.glob("*.csv.gz")]
    for path in (run / "records.csv", run / "processes.csv"):
        if stored(path).exists():
            header, lines = csv_rows(path)
            before = [dict(zip(header, line, strict=True)) for line in lines]
            cells = [each | _cells(rows[each["case"]], each) for each in before]
            disk.replace(path, "".join(map(csv_line, [header, *(each.values() for each in cells)])).encode())
    timelines_anew(run, rows)
    folder = RunFolder.open(run)
    folder.save_meta(counted=dict(evidence))
    folder.finish(folder.meta["state"])
    pack(packed)


def timelines_anew(run: Path, rows: Mapping[str, Row]) -> None:
    """Writes the predicted memory over the passes of a run anew, where it has them, in the same order."""
    path = run / "timeline.csv"
    if stored(path).exists():
        header, lines = csv_rows(path)
        passes = dict.fromkeys(tuple(line[:2]) for line in lines)  # of a case and a mode
        steps = [
            (case, mode, each.step, each.phase, each.op, each.bytes)
            for case, mode in passes
            for each in rows[case].outcome().timelines[mode]
        ]
        disk.replace(path, "".join(csv_line(map(str, line)) for line in (header, *steps)).encode())


def _cells(row: Row, stored: Mapping[str, str]) -> dict[str, str]:
    """The counted cells of a row and its notes; of the processes of a case the first has them."""
    if stored.get("process", "0") != "0":
        return {}
    now = row.counted()
    if now.status != "ok":
        raise SystemExit(f"{row.run.name} stays as it is, since {row.case.id} cannot be counted: {now.message}")
    kept = [note for note in parsed(stored.get("notes", ""), "") if note.code not in CODES]
    notes = [*(note for note in now.notes if note.code in CODES), *kept]
    texts = now.row() | {"notes": dumped(notes) if notes else ""}
    return {name: texts[name] for name in (*row.columns, "notes") if name in stored}


def main() -> None:
    os.chdir(ROOT)
    evidence = stamp()
    for run in runs():
        if found := stale(rows_of(run)):
            print(f"{run.relative_to(ROOT)}: {len(found)} rows, such as {found[0]}", flush=True)
            meta = RunFolder.open(run).meta
            if meta["static"]:
                run_anew(run, meta["command"])
            else:
                write_anew(run, evidence)


if __name__ == "__main__":
    main()
