"""`ctxbench compare`: candidates and registry modules through the contract, one run, and a ranking."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxbench import registry
from ctxbench.api import Run, run_suite
from ctxbench.contract import CheckResult
from ctxbench.engine.rounds import execute_in_rounds
from ctxbench.engine.scheduler import Executor, Outcome, Plan
from ctxbench.environment import differences
from ctxbench.errors import UsageError, unknown
from ctxbench.messages import Sample, TimelineStep
from ctxbench.metrics import quantities
from ctxbench.metrics.base import Quantity
from ctxbench.progress import Quiet
from ctxbench.ranking import Ranking, Standing, Value, exactly
from ctxbench.results import Record, RunFolder
from ctxbench.suite import Case, Overrides, Shape, Suite, load
from ctxbench.verify import verify

# What may differ between the rows of a run besides the module and its hyper-parameters.
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
    return verify(candidate, executor, hparams=request.hparams(candidate), compilers=False)


def check_names(request: Request, suite: str, rank_by: str) -> None:
    """UsageError for an unknown suite, column or registry module, before anything is run."""
    load(suite)
    ranked = [key for key, each in quantities().items() if each.better]
    if rank_by not in ranked:
        raise unknown("quantity to rank by", rank_by, ranked)
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
    """Measure candidates and registry modules in two rounds, in one run; `environment` is this machine's.

    With `reuse`, the registry's cases that this earlier run holds are copied from it instead. Raises UsageError if a
    name is unknown, two candidates share a key, or the earlier run was made elsewhere or with other settings.
    """
    loaded, keys = _suite(request, suite, shape)
    earlier = _reusable(reuse, loaded, keys, environment) if reuse else {}

    def order(cases: Sequence[Case], plan: Plan, executor: Executor, folder: RunFolder, shown: Quiet) -> None:
        reused = [case.id for case in cases if case.id in earlier]
        folder.save_meta(candidates=keys, reused={"folder": str(reuse), "cases": reused} if reused else None)
        for case in reused:
            earlier[case].write(folder)
        execute_in_rounds([case for case in cases if case.id not in earlier], plan, executor, folder, shown)

    return run_suite(loaded, out=out, reporter=reporter, order=order)


def rankings(run: Run) -> list[Ranking]:
    """The rows of a run as standings, for each input and condition; memory is what was measured, else predicted."""
    candidates: list[str] = run.folder.meta["candidates"]
    found = []
    for _, rows in run.frame.groupby(list(CONDITIONS), sort=False, dropna=False):
        records = [Record.of_row(row) for row in rows.to_dict("records")]
        columns = {key: _column(each, records) for key, each in quantities().items()}
        predicted = any(columns[key] == each.column for key, each in quantities().items() if each.measured_column)
        memory = "predicted for CUDA" if predicted else "measured on this device"
        standings = [_standing(record, columns, candidates) for record in records]
        found.append(Ranking(_condition(records[0]), memory, standings))
    return found


def _column(each: Quantity, records: Sequence[Record]) -> str:
    """The measured column of a quantity if any record has it, else the predicted one."""
    measured = each.measured_column
    return measured if measured and any(r.get(measured) is not None for r in records) else each.column


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


def _reusable(
    path: Path, suite: Suite, candidates: Sequence[str], environment: Mapping[str, Any]
) -> dict[str, Outcome]:
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
    found = {}
    for row in frame[~frame["module"].isin(candidates)].to_dict("records"):
        record = Record.of_row(row)
        record.warn(f"reused from {path}")
        streams = {
            str(mode): [Sample(at_s, int(n), ms) for at_s, n, ms in zip(part.at_s, part.passes, part.ms, strict=True)]
            for mode, part in samples[samples["case"] == record.case].groupby("mode", sort=False)
        }
        timelines = {
            str(mode): [
                TimelineStep(int(step), phase, op, int(size))
                for step, phase, op, size in zip(part.step, part.phase, part.op, part.bytes, strict=True)
            ]
            for mode, part in timeline[timeline["case"] == record.case].groupby("mode", sort=False)
        }
        found[record.case] = Outcome(record, streams, timelines)
    return found


def _condition(record: Record) -> str:
    parts = [f"[{record.batch}, {record.channels}, {record.height}, {record.width}]", record.dtype, record.device]
    parts += [part for part in (record.memory_format, record.execution) if part not in ("contiguous", "eager")]
    parts += [f"{record.threads} threads"] if record.threads is not None else []
    return ", ".join(parts)


def _standing(record: Record, columns: Mapping[str, str], candidates: Sequence[str]) -> Standing:
    settings = ", ".join(f"{name}={value}" for name, value in json.loads(record.hparams).items())
    values = {}
    for key, column in columns.items():
        value = record.get(column)
        if value is None:
            continue
        values[key] = exactly(value)
        if quantities()[key].has_interval:
            low, high = (record.get(quantities()[key].detail(end)) for end in ("low_ms", "high_ms"))
            # Without an interval a time is told apart from none.
            values[key] = Value(value, low if low is not None else 0.0, high if high is not None else math.inf)
    label = f"{record.module} ({settings})" if settings else record.module
    return Standing(label, record.module in candidates, values, record.status, record.message)
