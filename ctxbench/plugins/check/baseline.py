"""Stored baselines: a run folder or its records, read and compared exactly."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ctxbench.base.errors import UsageError
from ctxbench.base.load import disturbed
from ctxbench.base.mode import MODES
from ctxbench.base.notes import DRAWN
from ctxbench.devices import has_clock
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import from_columns
from ctxbench.model.metric import RecordRow
from ctxbench.model.suite_file import MeasureTable
from ctxbench.plugins.check.evidence import ProcessLogs
from ctxbench.plugins.check.result import EXACT_COLUMNS, ExactChange
from ctxbench.registry.reference import Reference
from ctxbench.results.environment import differences
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import add_medians, read_records

Readable = TypeVar("Readable")


@dataclass(frozen=True)
class Baseline:
    """Earlier measurement. `name` is for a person, `environment` as in `run.json` (None: not known).

    `cases` and `rows` have the same ids; a row has the medians of its processes. `measure` are the settings of the run;
    None where they are not known. `meta` is `run.json`, as far as there is one.
    """

    name: str
    environment: Mapping[str, Any] | None
    cases: Mapping[str, Case]
    rows: Mapping[str, RecordRow]
    measure: Measure | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def torch(self) -> str | None:
        return None if self.environment is None else self.environment["packages"]["torch"]

    def latencies(self, case: str) -> dict[str, ProcessLogs]:
        """Process logs of each timed mode."""
        row = self.rows[case]
        modes = MODES if has_clock(self.cases[case].device) else ()
        return {mode: process_logs(row, mode) for mode in modes if row[f"latency_{mode}_ms"] is not None}

    def timed(self, case: str) -> bool:
        """Return whether a latency was measured in enough processes, or a pass failed before it was."""
        failed = self.rows[case]["status"] != "ok" and has_clock(self.cases[case].device)
        return failed or any(logs.enough for logs in self.latencies(case).values())


@dataclass(frozen=True)
class Comparison:
    """The exact quantities that differ, how many were compared, and a sentence for those that were not."""

    changes: tuple[ExactChange, ...]
    compared: int
    notes: tuple[str, ...]


def load_baseline(path: Path) -> Baseline:
    """The baseline in a run folder or a `records.csv`. UsageError for anything else."""
    if os.path.isdir(path):
        return _from_records(path / "records.csv", path)
    if not os.path.lexists(path):
        raise UsageError(f"there is no {path}; --baseline takes a run folder or a records.csv")
    if path.name.endswith((".csv", ".csv.gz")):
        return _from_records(path, path)
    raise UsageError(f"{path} is no run folder and no records.csv")


def exact_of(row: RecordRow) -> dict[str, int]:
    """The known ones of EXACT_COLUMNS that are not drawn."""
    drawn = {note.values["column"] for note in row.get("notes") or () if note.code == DRAWN}
    names = [name for group in EXACT_COLUMNS.values() for name in group if name not in drawn]
    return {name: int(row[name]) for name in names if row[name] is not None}


def compare_exact(baseline: Baseline, case: str, candidate: RecordRow, torch: str | None) -> Comparison:
    """Compare a case of the baseline with a candidate's record under this `torch`.

    What the baseline does not know is not compared. MACs need the same counter; predicted memory needs the same target.
    It and the MACs of a training step need the same minor version of torch, whose kernels and gradients they are about.
    """
    stored = baseline.rows[case]
    exact = exact_of(stored)
    known = list(exact)
    notes = []
    other_torch = ""
    if _minor(baseline.torch) is None or _minor(baseline.torch) != _minor(torch):
        other_torch = f"for torch {baseline.torch or 'of unknown version'}, this one for {torch}"
    counter, target = (stored[name] or None for name in ("macs_counter", "memory_predicted_for"))
    if "macs" in known and counter != candidate["macs_counter"]:
        known.remove("macs")
        notes.append(f"MACs are not compared: the baseline's were counted by {counter or 'an unknown counter'}.")
    if "macs_train" in known and other_torch:
        known.remove("macs_train")
        notes.append(f"MACs of a training step are not compared: the baseline's count is {other_torch}.")
    memory = EXACT_COLUMNS["memory"]
    if any(name in known for name in memory):
        reason = other_torch
        if target != candidate["memory_predicted_for"]:
            reason = f"for {target or 'an unknown device'}, this one for {candidate['memory_predicted_for']}"
        if reason:
            known = [name for name in known if name not in memory]
            notes.append(f"Predicted memory is not compared: the baseline's is {reason}.")
    pairs = [(name, exact[name], candidate[name]) for name in known]
    changes = tuple(ExactChange(case, name, then, now) for name, then, now in pairs if then != now)
    return Comparison(changes, len(known), tuple(notes))


def same_machine(baseline: Baseline, environment: Mapping[str, Any]) -> tuple[bool, str]:
    """Comparability of latencies with the baseline here, and a sentence with the reason if there is none."""
    if baseline.environment is None:
        return False, "The baseline does not say on which machine it was measured: latencies are advisory."
    found = differences(baseline.environment, environment)
    if found:
        return False, f"The baseline was measured elsewhere ({'; '.join(found)}): latencies are advisory."
    return True, ""


def _minor(version: str | None) -> tuple[str, ...] | None:
    """Major and minor version."""
    return None if version is None else tuple(version.split(".")[:2])


def _from_records(records: Path, path: Path) -> Baseline:
    rows = read_records(records)
    add_medians(rows, records.with_name("processes.csv"))
    meta: Mapping[str, Any] = {}
    if os.path.lexists(records.parent / "run.json"):
        folder = RunFolder.open(records.parent)
        folder.warn_if_altered()
        meta = folder.meta
    cases = [
        _readable(f"{records}, record {number}", partial(_case_of, records=records), row)
        for number, row in enumerate(rows, start=1)
    ]
    if not cases:
        raise UsageError(f"{records} has no record")
    measure = _readable(str(records.parent / "run.json"), _measure, meta) if "definition" in meta else None
    ids = [case.id for case in cases]
    by_id = dict(zip(ids, cases, strict=True)), dict(zip(ids, rows, strict=True))
    environment = meta.get("environment")
    return Baseline(_name(path, environment), environment, *by_id, measure, meta)


def _measure(meta: Mapping[str, Any]) -> Measure:
    return MeasureTable.model_validate(meta["definition"]["measure"])


def _case_of(row: Mapping[str, Any], records: Path) -> Case:
    every, changed = json.loads(row["hparams"]), row["changed"].split()
    return Case(
        module=row["module"],
        reference=str(Reference.read(row["reference"], records)),
        hparams={name: every[name] for name in changed},
        defaults={name: value for name, value in every.items() if name not in changed},
        **from_columns(row),
    )


def process_logs(record: RecordRow, mode: str) -> ProcessLogs:
    """Process logs of a mode, from a record with their medians: none where they were not kept."""
    rows, controls = record[f"latency_{mode}_processes"], record["control_processes"]
    logs = [
        (math.log(rows[number] / controls[number]), math.log(controls[number])) for number in rows if number in controls
    ]
    row, control = zip(*logs, strict=True) if logs else ((), ())
    return ProcessLogs(row, control, disturbed(record["others_share"]))


def _readable(where: str, read: Callable[[Mapping[str, Any]], Readable], values: Mapping[str, Any]) -> Readable:
    """Result of `read` for the values; UsageError where they are damaged."""
    try:
        return read(values)
    except KeyError as error:
        raise UsageError(f"{where}: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from None


def _name(path: Path, environment: Any) -> str:
    """Name of the baseline for a person; UsageError for an environment that lacks what identifies a machine."""
    if environment is None:
        return str(path)
    try:
        differences(environment, environment)
        return f"{path} ({str(environment['time'])[:10]}, torch {environment['packages']['torch']})"
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: what it says of its machine is damaged ({error!r})") from None
