"""`ctxbench compare`: candidates and registry modules through the contract, one run, and a ranking."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxbench import contract, registry
from ctxbench.api import Run, run_suite
from ctxbench.contract import CheckResult
from ctxbench.engine.scheduler import Executor, Plan
from ctxbench.engine.turns import execute_in_turns
from ctxbench.environment import differences
from ctxbench.errors import UsageError, unknown
from ctxbench.progress import Quiet
from ctxbench.ranking import Ranking, Standing, Value, exactly
from ctxbench.results import MODES, Held, Record, RunFolder, Sample
from ctxbench.suite import Case, Overrides, Shape, Suite, load

# What a table can be ranked by, and the columns of a record that hold it.
COLUMNS = {
    "params": "params",
    "macs": "macs",
    "memory_infer": "memory_infer_bytes",
    "memory_train": "memory_train_bytes",
    "latency_infer": "latency_infer_ms",
    "latency_train": "latency_train_ms",
}
CONDITIONS = ("batch", "channels", "height", "width", "dtype", "memory_format", "execution", "threads", "device")


@dataclass(frozen=True)
class Request:
    """What to compare: references of the candidates, names of the registry modules, and their hyper-parameters.

    `settings` are the candidates' own (the key is empty for all of them, else a candidate's key) and those of registry
    modules by key.
    """

    candidates: Sequence[str]
    against: Sequence[str] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def hparams(self, candidate: str) -> dict[str, Any]:
        """A candidate's hyper-parameters, before its file is run: by the name of its class, or its key."""
        return {**self.settings.get("", {}), **self.settings.get(candidate.rpartition(":")[2], {})}


def check_contract(request: Request, candidate: str, executor: Executor) -> list[CheckResult]:
    """The contract of a candidate with its hyper-parameters, in a fresh process, without the compilers."""
    return contract.verify(candidate, executor, hparams=request.hparams(candidate), compilers=False)


def check_names(request: Request, suite: str, rank_by: str) -> None:
    """UsageError for an unknown suite, column or registry module, before anything is run."""
    load(suite)
    if rank_by not in COLUMNS:
        raise unknown("column", rank_by, COLUMNS)
    for name in request.against or ():
        registry.get(name)


def measure(
    request: Request,
    environment: Mapping[str, Any],
    *,
    suite: str = "compare",
    shape: Sequence[Shape] | None = None,
    reuse: Path | None = None,
    out: Path | None = None,
    reporter: Quiet | None = None,
) -> Run:
    """Measure candidates and registry modules in turns, in one run; `environment` is this machine's.

    With `reuse`, the registry's cases that this earlier run holds are copied from it instead. Raises UsageError if a
    name is unknown, two candidates share a key, or the earlier run was made elsewhere or with other settings.
    """
    loaded, keys = _suite(request, suite, shape)
    held = _held(reuse, loaded, keys, environment) if reuse else {}

    def order(cases: Sequence[Case], plan: Plan, executor: Executor, folder: RunFolder, shown: Quiet) -> None:
        reused = [case.id for case in cases if case.id in held]
        folder.save_meta(candidates=keys, reused={"folder": str(reuse), "cases": reused} if reused else None)
        for case in reused:
            record, samples, timelines = held[case]
            folder.append_timeline(case, timelines)
            folder.append(record, samples)
        execute_in_turns([case for case in cases if case.id not in held], plan, executor, folder, shown)

    return run_suite(loaded, out=out, reporter=reporter, order=order)


def rankings(run: Run) -> list[Ranking]:
    """The rows of a run as standings, for each input and condition; memory is what was measured, else predicted."""
    candidates: list[str] = run.folder.meta["candidates"]
    found = []
    for _, rows in run.frame.groupby(list(CONDITIONS), sort=False, dropna=False):
        columns, memory = COLUMNS, "measured on this device"
        if rows[["memory_infer_bytes", "memory_train_bytes"]].isna().all(axis=None):
            columns = COLUMNS | {f"memory_{mode}": f"memory_{mode}_predicted_bytes" for mode in MODES}
            memory = "predicted for CUDA"
        records = [_record(row) for row in rows.to_dict("records")]
        standings = [_standing(record, columns, candidates) for record in records]
        found.append(Ranking(_condition(records[0]), memory, standings))
    return found


def _suite(request: Request, name: str, shape: Sequence[Shape] | None) -> tuple[Suite, list[str]]:
    """The suite with the candidates first, and the candidates' keys. Finding the keys runs the candidates' files."""
    found: dict[str, str] = {}
    for candidate in request.candidates:
        key = registry.get(candidate).key
        if key in found:
            raise UsageError(
                f"{found[key]} and {candidate} are both called {key!r}; give one another key with @register"
            )
        found[key] = candidate
    names = request.against if request.against is not None else [e.key for e in registry.entries() if not e.broken]
    others = [registry.get(other).key for other in names if other not in found]
    classes = {candidate.rpartition(":")[2] for candidate in request.candidates}
    for setting in request.settings:
        if setting and setting not in {*found, *others, *classes}:
            raise unknown("module in --set", setting, {*found, *others})
    hparams = {other: request.settings[other] for other in others if other in request.settings}
    hparams |= {c: {**request.hparams(c), **request.settings.get(key, {})} for key, c in found.items()}
    overrides = Overrides(modules=[*found.values(), *others], shape=list(shape) if shape else None, hparams=hparams)
    return load(name, overrides), list(found)


def _held(
    path: Path, suite: Suite, candidates: Sequence[str], environment: Mapping[str, Any]
) -> dict[str, tuple[Record, dict[str, list[Sample]], dict[str, list[Held]]]]:
    """The cases that the run in `path` holds, the candidates' apart. UsageError if they do not go with a run of now."""
    folder = RunFolder.open(path)
    meta = folder.meta
    changed = differences(meta["environment"], environment)
    then, now = meta["definition"]["measure"], suite.file.measure.model_dump(mode="json")
    changed += [f"{name}: {then.get(name)} then, {now[name]} now" for name in now if then.get(name) != now[name]]
    metrics = [metric for metric in suite.file.metrics if metric not in meta["metrics"]]
    if meta["static"] or metrics:
        changed.append(f"{', '.join(metrics) or 'everything but static metrics'} was not measured")
    if changed:
        raise UsageError(f"{path} cannot be reused ({'; '.join(changed)}): its rows and new ones do not mix")
    frame, samples, timeline = folder.frame(), folder.samples(), folder.timeline()
    held = {}
    for row in frame[~frame["module"].isin(candidates)].to_dict("records"):
        record = _record(row)
        record.warnings = "; ".join(filter(None, [record.warnings, f"reused from {path}"]))
        streams = {
            str(mode): [Sample(at_s, int(n), ms) for at_s, n, ms in zip(part.at_s, part.passes, part.ms, strict=True)]
            for mode, part in samples[samples["case"] == record.case].groupby("mode", sort=False)
        }
        courses = {
            str(mode): [
                Held(int(step), phase, op, int(size))
                for step, phase, op, size in zip(part.step, part.phase, part.op, part.bytes, strict=True)
            ]
            for mode, part in timeline[timeline["case"] == record.case].groupby("mode", sort=False)
        }
        held[record.case] = (record, streams, courses)
    return held


def _record(row: Mapping[Any, Any]) -> Record:
    import pandas as pd

    values: dict[str, Any] = {str(name): None if pd.isna(value) else value for name, value in row.items()}
    return Record(**values)


def _condition(record: Record) -> str:
    parts = [f"[{record.batch}, {record.channels}, {record.height}, {record.width}]", record.dtype, record.device]
    parts += [part for part in (record.memory_format, record.execution) if part not in ("contiguous", "eager")]
    parts += [f"{record.threads} threads"] if record.threads is not None else []
    return ", ".join(parts)


def _standing(record: Record, columns: Mapping[str, str], candidates: Sequence[str]) -> Standing:
    settings = ", ".join(f"{name}={value}" for name, value in json.loads(record.hparams).items())
    values = {}
    for column, name in columns.items():
        value = getattr(record, name)
        if value is None:
            continue
        values[column] = exactly(value)
        if column.startswith("latency"):
            low, high = (getattr(record, f"{column}_{end}_ms") for end in ("low", "high"))
            # Without an interval a time is told apart from none.
            values[column] = Value(value, low if low is not None else 0.0, high if high is not None else math.inf)
    label = f"{record.module} ({settings})" if settings else record.module
    return Standing(label, record.module in candidates, values, record.status, record.message)
