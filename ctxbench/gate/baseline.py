"""Stored baselines: a run folder or its records, read and compared exactly."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ctxbench.case import Case, Measure
from ctxbench.comparison import known
from ctxbench.conditions import from_columns
from ctxbench.devices import has_clock
from ctxbench.environment import differences
from ctxbench.errors import UsageError
from ctxbench.gate.result import EXACT_COLUMNS, ExactChange
from ctxbench.gate.rules import ProcessLogs
from ctxbench.machine_load import disturbed
from ctxbench.mode import MODES
from ctxbench.results.csv_file import rows_of
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import read_records, with_medians
from ctxbench.suite.file import MeasureTable

Readable = TypeVar("Readable")


@dataclass(frozen=True)
class StoredCase:
    """A case of the baseline. `exact` has the known ones of EXACT_COLUMNS, `rows` the latencies of the timed modes.

    `elapsed_s` is how long all of it took; 0 if that is not known.
    """

    case: Case
    status: str
    exact: Mapping[str, int]
    macs_counter: str | None
    memory_predicted_for: str | None
    rows: Mapping[str, ProcessLogs]
    elapsed_s: float = 0.0

    @property
    def timed(self) -> bool:
        """Whether its latency was measured in enough processes, or a pass failed before it was."""
        return any(row.enough for row in self.rows.values()) or (self.status != "ok" and has_clock(self.case.device))


@dataclass(frozen=True)
class Baseline:
    """What was measured earlier. `name` is for a person, `environment` as in `run.json` (None: not known).

    `measure` are the settings of the run; None where they are not known.
    """

    name: str
    environment: Mapping[str, Any] | None
    cases: Mapping[str, StoredCase]
    measure: Measure | None = None

    @property
    def torch(self) -> str | None:
        return None if self.environment is None else self.environment["packages"]["torch"]


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
    if path.suffix == ".csv":
        return _from_records(path, path)
    raise UsageError(f"{path} is no run folder and no records.csv")


def compare_exact(baseline: Baseline, case: str, candidate: Mapping[str, Any], torch: str | None) -> Comparison:
    """Compare a case of the baseline with a candidate's values, which are columns of a record, under this `torch`.

    What the baseline does not know is not compared. MACs need the same counter; predicted memory needs the same target.
    It and the MACs of a training step need the same minor version of torch, whose kernels and gradients they are about.
    """
    stored = baseline.cases[case]
    known = list(stored.exact)
    notes = []
    other_torch = ""
    if _minor(baseline.torch) is None or _minor(baseline.torch) != _minor(torch):
        other_torch = f"for torch {baseline.torch or 'of unknown version'}, this one for {torch}"
    if "macs" in known and stored.macs_counter != candidate.get("macs_counter"):
        known.remove("macs")
        notes.append(
            f"MACs are not compared: the baseline's were counted by {stored.macs_counter or 'an unknown counter'}."
        )
    if "macs_train" in known and other_torch:
        known.remove("macs_train")
        notes.append(f"MACs of a training step are not compared: the baseline's count is {other_torch}.")
    targets = stored.memory_predicted_for, candidate.get("memory_predicted_for")
    memory = EXACT_COLUMNS["memory"]
    if any(name in known for name in memory):
        reason = other_torch
        if targets[0] != targets[1]:
            reason = f"for {targets[0] or 'an unknown device'}, this one for {targets[1]}"
        if reason:
            known = [name for name in known if name not in memory]
            notes.append(f"Predicted memory is not compared: the baseline's is {reason}.")
    pairs = [(name, stored.exact[name], candidate.get(name)) for name in known]
    changes = tuple(ExactChange(case, name, then, now) for name, then, now in pairs if then != now)
    return Comparison(changes, len(known), tuple(notes))


def same_machine(baseline: Baseline, environment: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether latencies may be judged against the baseline here, and a sentence that says why not."""
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
    frame = with_medians(read_records(records), records.with_name("processes.csv"))
    meta: Mapping[str, Any] = {}
    if os.path.lexists(records.parent / "run.json"):
        folder = RunFolder.open(records.parent)
        folder.warn_if_altered()
        meta = folder.meta
    cases = {}
    for number, values in enumerate(rows_of(frame.astype(object).where(frame.notna(), None)), start=1):
        stored = _readable(f"{records}, record {number}", _from_record, values)
        cases[stored.case.id] = stored
    if not cases:
        raise UsageError(f"{records} has no record")
    measure = _readable(str(records.parent / "run.json"), _measure, meta) if "definition" in meta else None
    named = _named(path, meta.get("environment"), cases)
    return replace(named, measure=measure)


def _measure(meta: Mapping[str, Any]) -> Measure:
    return MeasureTable.model_validate(meta["definition"]["measure"])


def _from_record(values: Mapping[str, Any]) -> StoredCase:
    every, changed = json.loads(values["hparams"]), values["changed"].split()
    case = Case(
        module=values["module"],
        reference=values["reference"],
        hparams={name: every[name] for name in changed},
        defaults={name: value for name, value in every.items() if name not in changed},
        **from_columns(values),
    )
    modes = [mode for mode in MODES if has_clock(case.device) and values.get(f"latency_{mode}_ms") is not None]
    return _stored(case, values, values["status"], {mode: process_logs(values, mode) for mode in modes})


def process_logs(values: Mapping[str, Any], mode: str) -> ProcessLogs:
    """What the processes say of a mode, from a record with their medians: none where they were not kept."""
    rows, controls = values[f"latency_{mode}_processes"], values["control_processes"]
    logs = [
        (math.log(rows[number] / controls[number]), math.log(controls[number])) for number in rows if number in controls
    ]
    row, control = zip(*logs, strict=True) if logs else ((), ())
    return ProcessLogs(row, control, disturbed(known(values, "others_share")))


def _stored(case: Case, values: Mapping[str, Any], status: str, rows: Mapping[str, ProcessLogs]) -> StoredCase:
    names = [name for group in EXACT_COLUMNS.values() for name in group]
    exact = {name: int(values[name]) for name in names if values.get(name) is not None}
    counter, target = (values.get(name) or None for name in ("macs_counter", "memory_predicted_for"))
    return StoredCase(case, status, exact, counter, target, rows, values.get("elapsed_s") or 0.0)


def _readable(where: str, read: Callable[[Mapping[str, Any]], Readable], values: Mapping[str, Any]) -> Readable:
    """What `read` makes of the values; UsageError where they are damaged."""
    try:
        return read(values)
    except KeyError as error:
        raise UsageError(f"{where}: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from None


def _named(path: Path, environment: Any, cases: Mapping[str, StoredCase]) -> Baseline:
    """The baseline with its name; UsageError for an environment that lacks what identifies a machine."""
    if environment is None:
        return Baseline(str(path), None, cases)
    try:
        differences(environment, environment)
        name = f"{path} ({str(environment['time'])[:10]}, torch {environment['packages']['torch']})"
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: what it says of its machine is damaged ({error!r})") from None
    return Baseline(name, environment, cases)
