"""`ctxbench compare`: candidates and registry modules through the contract, one run, and a ranking."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ctxbench import devices, registry
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.notes import Note
from ctxbench.devices.cpu import Cpu
from ctxbench.engine.estimate import whole_s
from ctxbench.engine.one_process import Executor, Outcome
from ctxbench.engine.progress import Quiet
from ctxbench.engine.run import check_installed, run_suite
from ctxbench.model.case import EMPTY, Case
from ctxbench.model.conditions import COLUMNS, from_columns, phrases
from ctxbench.model.grid import Suite
from ctxbench.model.hparams import combinations
from ctxbench.model.messages import Sample, TimelineStep
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import metrics, quantities, read_number
from ctxbench.model.read_suite import Overrides, load
from ctxbench.model.suite_file import MeasureTable
from ctxbench.plugins.compare.ranking import Ranking, Standing
from ctxbench.plugins.verify.contract import CHANNELS, CheckResult
from ctxbench.plugins.verify.verify import verify
from ctxbench.results.environment import differences
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.run_meta import REUSED
from ctxbench.results.sources import changed_files, row_name

# Seconds that a process takes beside its samples, and that params, MACs and memory of a case take.
PROCESS_S, COSTS_S = 0.6, 1.0


class BrokenModules(UsageError):
    """No candidate meets the contract, so that nothing was measured."""


@dataclass(frozen=True)
class Request:
    """Comparison to make: references of the candidates, names of the registry modules, and their hyper-parameters.

    `settings` are the candidates' own (the key is empty for all of them, else a candidate's key) and those of registry
    modules by key.
    """

    candidates: Sequence[str]
    modules: Sequence[str] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def without(self, candidates: Collection[str]) -> "Request":
        """The request without these candidates, and without the settings that name one of them."""
        own = {candidate.rpartition(":")[2] for candidate in candidates}
        return replace(
            self,
            candidates=[each for each in self.candidates if each not in candidates],
            settings={name: value for name, value in self.settings.items() if name not in own},
        )

    def hparams(self, candidate: str) -> dict[str, Any]:
        """A candidate's hyper-parameters, before its file is run: by the name of its class, or its key."""
        return {**self.settings.get("", {}), **self.settings.get(candidate.rpartition(":")[2], {})}


def channels_of(suite: str, overrides: Overrides) -> int:
    """For how many channels candidates are made at the first input; in a network its slots decide."""
    axes = load(suite, overrides).file.axes
    return CHANNELS if axes.network[0] else (axes.channels or [axes.shape[0][1]])[0]


def check_contract(
    request: Request,
    candidate: str,
    executor: Executor,
    channels: int = CHANNELS,
    on_stage: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[str, list[CheckResult]]]:
    """The contract of a candidate with each of its settings, in fresh processes, without the compilers.

    Each comes with a name: the candidate's, and the settings where there are several. `on_stage` is told which check
    begins.
    """

    def begin(name: str, check: str) -> None:
        on_stage(f"verifying {name}: {check}")

    chosen = combinations(request.hparams(candidate))
    for hparams in chosen:
        text = ", ".join(f"{name}={value}" for name, value in hparams.items())
        name = f"{candidate} ({text})" if len(chosen) > 1 else candidate
        yield (
            name,
            verify(
                candidate,
                executor,
                channels=channels,
                hparams=hparams,
                compilers=False,
                on_start=partial(begin, name),
            ),
        )


def check_names(request: Request, suite: str, overrides: Overrides, rank_by: str, reuse: Path | None = None) -> None:
    """UsageError for an unknown suite, column or registry module, a package that is missing for what is asked, or a run
    that cannot be reused, before any is run.
    """
    check_installed(load(suite, overrides).file)
    ranked = [key for key, each in quantities().items() if each.better]
    if rank_by not in ranked:
        raise unknown("quantity to rank by", rank_by, ranked)
    for name in request.modules or ():
        registry.get(name)
    if reuse:
        _finished(reuse)


def measure(
    request: Request,
    environment: Mapping[str, Any],
    *,
    suite: str = "compare",
    overrides: Overrides | None = None,
    broken: Sequence[str] = (),
    reuse: Path | None = None,
    out: Path | None = None,
    reporter: Quiet | None = None,
) -> RunFolder:
    """Measure candidates and registry modules in one run; `environment` is this machine's.

    `overrides` replace the suite's inputs and settings; the modules and their hyper-parameters are the request's. The
    rows of the candidates that are `broken` (do not meet the contract) say so. With `reuse`, the registry's cases that
    this earlier run holds are copied from it instead. Raises UsageError if a name is unknown, two candidates share a
    key, or the earlier run is not finished, or was made elsewhere or with other settings.
    """
    loaded, keys = _suite(request, suite, overrides or Overrides())
    earlier = reusable(reuse, loaded, keys, environment) if reuse else {}

    def copy(folder: RunFolder, cases: Sequence[Case]) -> None:
        reused = [case.id for case in cases if case.id in earlier]
        marked = [key for key, candidate in zip(keys, request.candidates, strict=True) if candidate in broken]
        folder.save_meta(
            candidates=keys, broken=marked, reused={"folder": str(reuse), "cases": reused} if reused else None
        )
        for number, outcome in (each for case in reused for each in earlier[case].items()):
            outcome.write(folder, number)

    return run_suite(loaded, out=out, reporter=reporter, before=copy)


def expected_s(request: Request, suite: str, overrides: Overrides) -> tuple[int, float]:
    """Number of cases in a comparison, and its approximate duration in seconds if each pass fits into the budget."""
    loaded, _ = _suite(request, suite, overrides)
    cases, measure = loaded.cases(), loaded.file.measure
    timed = sum(devices.has_clock(case.device) for case in cases)
    costs_s = COSTS_S + whole_s(loaded.file.metrics, measure)
    return len(cases), costs_s * len(cases) + timed * (
        measure.processes * (2 * (measure.warmup_s + measure.sample_s) + PROCESS_S)
    )


def rankings(run: RunFolder) -> list[Ranking]:
    """The rows of a run as standings, for each input and condition; memory is what a GPU showed, else predicted."""
    candidates: list[str] = run.meta["candidates"]
    found = []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.rows():
        if row["module"] != EMPTY:  # a network without a module is no module's rival
            groups.setdefault(tuple(row[column] for column in COLUMNS), []).append(row)
    for rows in groups.values():
        columns = {key: _column(each, rows) for key, each in quantities().items()}
        predicted = any(columns[key] == each.column for key, each in quantities().items() if each.measured_column)
        memory = "predicted for CUDA" if predicted else "measured on this device"
        standings = [_standing(row, columns, candidates, run.meta.get("broken", ())) for row in rows]
        found.append(Ranking(_condition(rows[0]), memory, standings))
    return found


def abilities(run: RunFolder) -> list[str]:
    """Sentences of metrics on each candidate, such as on its abilities: the same for all inputs."""
    own = [row for row in run.rows() if row["module"] in run.meta["candidates"]]
    told = [(row["module"], metric.sentence(row)) for row in own for metric in metrics().values()]
    return list(dict.fromkeys(f"{module} {text}" for module, text in told if text))


def _column(each: Quantity, rows: Sequence[RecordRow]) -> str:
    """The measured column of a quantity if the rows are of a GPU and one has it, else the predicted one."""
    measured = each.measured_column
    names = {str(row["device"]) for row in rows}
    on_gpu = all(devices.has_clock(name) and devices.device(name).kind != Cpu.kind for name in names)
    return measured if measured and on_gpu and any(row[measured] is not None for row in rows) else each.column


def _suite(request: Request, name: str, overrides: Overrides) -> tuple[Suite, list[str]]:
    """The suite with the candidates first, and the candidates' keys. Finding the keys runs the candidates' files."""
    found: dict[str, str] = {}
    for candidate in request.candidates:
        key = registry.get(candidate).key
        if key in found:
            raise UsageError(
                f"{found[key]} and {candidate} are both called {key!r}; give one another key with @register"
            )
        found[key] = candidate
    names = request.modules if request.modules is not None else [e.key for e in registry.entries() if not e.broken]
    others = [registry.get(other).key for other in names if other not in found]
    classes = {candidate.rpartition(":")[2] for candidate in request.candidates}
    for setting in request.settings:
        if setting and setting not in {*found, *others, *classes}:
            raise unknown("module in --set", setting, {*found, *others})
    hparams = {other: request.settings[other] for other in others if other in request.settings}
    hparams |= {c: {**request.hparams(c), **request.settings.get(key, {})} for key, c in found.items()}
    chosen = replace(overrides, modules=[*found.values(), *others], hparams=hparams)
    return load(name, chosen), list(found)


def reusable(
    path: Path, suite: Suite, candidates: Sequence[str], environment: Mapping[str, Any]
) -> dict[str, dict[int, Outcome]]:
    """The processes of the cases that the run in `path` holds, the candidates' apart, by their numbers.

    UsageError if they do not go with a run of now.
    """
    folder = _finished(path)
    folder.warn_if_altered()
    cases = [case for case in suite.cases() if case.module not in candidates]
    if changed := _changed(folder.meta, suite, cases, environment):
        raise UsageError(f"{path} cannot be reused ({'; '.join(changed)}): its rows and new ones do not mix")
    found = {}
    for case, processes in folder.finished().items():
        if 0 in processes and processes[0].module not in candidates:
            processes[0].note(Note("reused", {"path": str(path)}))
            imports = (folder.meta.get("imports") or {}).get(row_name(processes[0].module, processes[0].network), {})
            found[case] = {n: Outcome(record, {}, {}, imports=imports) for n, record in processes.items()}
    return _with_streams(found, folder)


def _finished(path: Path) -> RunFolder:
    """The folder of an earlier run. UsageError if it is none, or is not finished."""
    folder = RunFolder.open(path)
    folder.require(REUSED)
    if folder.meta["state"] != "finished":
        raise UsageError(f"{path} cannot be reused: it is not finished; continue it with ctxbench resume {path}")
    return folder


def _changed(meta: Mapping[str, Any], suite: Suite, cases: Sequence[Case], environment: Mapping[str, Any]) -> list[str]:
    """Differences from an earlier run: machine, software, settings, the code of these cases, metrics."""
    changed = differences(meta["environment"], environment)
    default, now = (each.model_dump(mode="json") for each in (MeasureTable(), suite.file.measure))
    then = {**default, **meta["definition"]["measure"]}
    changed += [f"{name}: {then[name]} then, {now[name]} now" for name in now if then[name] != now[name]]
    changed += [f"{file} has changed" for file in changed_files(meta, cases)]
    added = [metric for metric in suite.file.metrics if metric not in meta["metrics"]]
    if meta["static"] or added:
        changed.append(f"{', '.join(added) or 'everything but static metrics'} was not measured")
    return changed


def _with_streams(found: dict[str, dict[int, Outcome]], folder: RunFolder) -> dict[str, dict[int, Outcome]]:
    """The outcomes with their samples; process 0 with the memory over a pass."""
    for (case, number, mode), part in folder.samples().groupby(["case", "process", "mode"], sort=False):
        if outcome := found.get(case, {}).get(number):
            rows = zip(part.at_s, part.passes, part.ms, strict=True)
            outcome.samples = {**outcome.samples, mode: [Sample(at_s, int(n), ms) for at_s, n, ms in rows]}
    for (case, mode), part in folder.timeline().groupby(["case", "mode"], sort=False):
        if outcome := found.get(case, {}).get(0):
            steps = zip(part.step, part.phase, part.op, part.bytes, strict=True)
            timeline = [TimelineStep(int(step), phase, op, int(size)) for step, phase, op, size in steps]
            outcome.timelines = {**outcome.timelines, mode: timeline}
    return found


def _condition(row: Mapping[str, Any]) -> str:
    return ", ".join(phrases({name: [value] for name, value in from_columns(row).items()}))


def _standing(row: RecordRow, columns: Mapping[str, str], candidates: Sequence[str], broken: Sequence[str]) -> Standing:
    every = json.loads(row["hparams"])
    settings = ", ".join(f"{name}={every[name]}" for name in row["changed"].split())
    read = {key: read_number(row, quantities()[key], column) for key, column in columns.items()}
    values = {key: value for key, value in read.items() if value}
    label = f"{row['module']} ({settings})" if settings else str(row["module"])
    label += " [does not meet the contract]" if row["module"] in broken else ""
    return Standing(label, row["module"] in candidates, values, str(row["status"]), str(row["message"]))
