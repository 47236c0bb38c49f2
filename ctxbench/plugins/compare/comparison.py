"""`ctxbench compare`: candidates and registry modules through the contract, one run, and a ranking."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ctxbench import devices, registry
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.notes import Note, short
from ctxbench.base.texts import listed
from ctxbench.devices.cpu import Cpu
from ctxbench.engine.estimate import whole_s
from ctxbench.engine.one_process import CaseOutcome, Executor
from ctxbench.engine.progress import Quiet
from ctxbench.engine.run import run_suite
from ctxbench.model.case import EMPTY, Case
from ctxbench.model.conditions import COLUMNS, SHAPE, Shape, from_columns, phrases
from ctxbench.model.grid import Suite
from ctxbench.model.hparams import combinations
from ctxbench.model.messages import Sample, TimelineStep
from ctxbench.model.metric import Quantity, RecordRow
from ctxbench.model.metrics import metrics, quantities, read_number
from ctxbench.model.read_suite import Overrides, overridden
from ctxbench.model.suite_file import Figure, MeasureTable, SuiteFile
from ctxbench.plugins.compare.ranking import Ranking, Standing
from ctxbench.plugins.verify.contract import CHANNELS, CheckResult, option
from ctxbench.plugins.verify.verify import verify
from ctxbench.results.environment import differences
from ctxbench.results.plan import check_installed
from ctxbench.results.rows import by_values
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.run_meta import REUSED
from ctxbench.results.sources import changed_files, row_name

# The name of the figure of an ablation.
FIGURE = "settings"
AS_IT_IS = f"fix it, or measure it as it is: {option('--anyway', 'anyway=True')}"
# Seconds that a process takes beside its samples, and that params, MACs and memory of a case take.
PROCESS_S, COSTS_S = 0.6, 1.0


class BrokenModules(UsageError):
    """No candidate meets the contract, so that nothing was measured; in its text `why`, a line for each check."""

    def __init__(self, why: Iterable[object]) -> None:
        self.sentence = f"nothing was measured; {AS_IT_IS}"
        super().__init__("\n".join([*map(str, why), self.sentence]))


@dataclass(frozen=True)
class ComparisonPlan:
    """Comparison to make: references of the candidates, names of the registry modules, and their hyper-parameters.

    `settings` are the candidates' own (the key is empty for all of them, else a candidate's key) and those of registry
    modules by key. `asked` has the inputs and settings: a suite that is read once, and still has its own modules.
    """

    asked: Suite
    candidates: Sequence[str]
    modules: Sequence[str] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def without(self, candidates: Collection[str]) -> "ComparisonPlan":
        """The plan without these candidates, and without the settings that name one of them."""
        own = {registry.own_name(candidate) for candidate in candidates}
        return replace(
            self,
            candidates=[each for each in self.candidates if each not in candidates],
            settings={name: value for name, value in self.settings.items() if name not in own},
        )

    def hparams(self, candidate: str) -> dict[str, Any]:
        """A candidate's hyper-parameters, before its file is run: by the name of its class, or its key."""
        return {**self.settings.get("", {}), **self.settings.get(registry.own_name(candidate), {})}

    @cached_property
    def keys(self) -> dict[str, str]:
        """The candidates by their keys, which their files tell. UsageError if two have the same."""
        found: dict[str, str] = {}
        for candidate in self.candidates:
            key = registry.get(candidate).key
            if key in found:
                raise UsageError(
                    f"{found[key]} and {candidate} are both called {key!r}; give one another key with @register"
                )
            found[key] = candidate
        return found

    @cached_property
    def suite(self) -> Suite:
        """The suite of the run, with the candidates first. UsageError for settings of a module that it lacks."""
        own, settings = self.keys, self.settings
        names = self.modules if self.modules is not None else [e.key for e in registry.entries() if not e.broken]
        others = {registry.get(other).key: other for other in names if other not in own}
        classes = {registry.own_name(candidate) for candidate in self.candidates}
        for setting in settings:
            if setting and setting not in {*own, *others, *classes}:
                raise unknown("module in --set", setting, {*own, *others})
        mine = {key: {**self.hparams(candidate), **settings.get(key, {})} for key, candidate in own.items()}
        hparams = {other: settings[other] for other in others if other in settings}
        hparams |= {candidate: mine[key] for key, candidate in own.items()}
        found = overridden(self.asked, Overrides(modules=[*own.values(), *others.values()], hparams=hparams))
        figures = [*found.file.figures, *_figures(found.file, mine)]
        return replace(found, file=found.file.model_copy(update={"figures": figures}))


def loadable(plan: ComparisonPlan, tell: Callable[[str], object]) -> ComparisonPlan:
    """The plan without the candidates that cannot be loaded, which are told. UsageError if none is left."""
    wrong: dict[str, UsageError] = {}
    for candidate in plan.candidates:
        try:
            registry.get(candidate)
        except UsageError as error:
            wrong[candidate] = error
    if wrong and len(wrong) == len({*plan.candidates}):
        raise next(iter(wrong.values()))
    for candidate, why in wrong.items():
        tell(f"left out: {candidate}: {why}")
    return plan.without(wrong)


def at_own_width(plan: ComparisonPlan) -> ComparisonPlan:
    """The plan with the suite's inputs at the channels that an instance is made for."""
    widths = {registry.get(each).made_for for each in plan.candidates} - {None}
    if not widths:
        return plan
    shapes = [(b, width, h, w) for b, _, h, w in plan.asked.file.axes.shape for width in widths]
    return replace(plan, asked=overridden(plan.asked, Overrides(conditions={"shape": shapes})))


def check_contract(
    plan: ComparisonPlan, executor: Executor, on_stage: Callable[[str], None]
) -> dict[str, list[tuple[str, list[CheckResult]]]]:
    """The contract of each candidate with each of its settings, in fresh processes, without the compilers.

    Each comes with a name: the candidate's, and the settings where there are several. Of a comparison that counts and
    predicts, and measures nothing, only the first setting is checked. `on_stage` is told what begins.
    """
    asked = [metrics()[name] for name in plan.asked.file.metrics]
    counts_alone = not any(each.measure or each.time or each.compute for each in asked)
    channels, size = _input_of(plan.asked.file)
    found: dict[str, list[tuple[str, list[CheckResult]]]] = {}
    for candidate in dict.fromkeys(plan.candidates):
        chosen = combinations(plan.hparams(candidate), registry.get(candidate))[: 1 if counts_alone else None]
        own = found.setdefault(candidate, [])
        for hparams in chosen:
            text = ", ".join(f"{name}={value}" for name, value in hparams.items())
            name = registry.own_name(candidate) + (f" ({text})" if len(chosen) > 1 else "")
            on_stage(f"verifying {name}")
            checks = verify(candidate, executor, channels=channels, hparams=hparams, also=size, compilers=False)
            own.append((name, checks))
    return found


def _input_of(file: SuiteFile) -> tuple[int, tuple[int, int] | None]:
    """Channels, height and width of the first input of candidates; in a network its slots decide.

    The size is one at which a candidate is checked that refuses the usual ones.
    """
    axes = file.axes
    if axes.network[0]:
        return CHANNELS, None
    _, channels, height, width = axes.shape[0]
    size = (axes.size[0], axes.size[0]) if axes.size else (height, width)
    return (axes.channels or [channels])[0], size


def marks_of(checked: Iterable[tuple[str, Sequence[CheckResult]]]) -> list[str]:
    """Words for the rows of a candidate, by its checked settings: how far it reaches, which checks it fails."""
    results = [each for _, own in checked for each in own]
    failed = list(dict.fromkeys(each.name for each in results if each.broken and not each.misleads))
    found = [each.mark for each in results if each.mark] + ([f"fails: {', '.join(failed)}"] if failed else [])
    return list(dict.fromkeys(found))


def check_names(plan: ComparisonPlan, rank_by: str, reuse: Path | None) -> None:
    """UsageError for an unknown column or registry module, a package that is missing for what is asked, or a run
    that cannot be reused, before any is run.
    """
    check_installed(plan.asked.file)
    ranked = [key for key, each in quantities().items() if each.better]
    if rank_by not in ranked:
        raise unknown("quantity to rank by", rank_by, ranked)
    for name in plan.modules or ():
        registry.get(name)
    if reuse:
        _finished(reuse)


def measure(
    plan: ComparisonPlan,
    environment: Mapping[str, Any],
    *,
    marks: Mapping[str, Sequence[str]] | None = None,
    broken: Sequence[str] = (),
    reuse: Path | None = None,
    out: Path | None = None,
    reporter: Quiet | None = None,
) -> RunFolder:
    """Measure candidates and registry modules in one run; `environment` is this machine's.

    The rows of the candidates that are `broken` (do not meet the contract) say so; the rows of each also say its
    `marks`, by candidate. With `reuse`, the registry's cases that this earlier run holds are copied from it instead.
    Raises UsageError if a name is unknown, two candidates share a key, or the earlier run is not finished, or was made
    elsewhere or with other settings.
    """
    keys = plan.keys
    earlier = reusable(reuse, plan.suite, keys, environment) if reuse else {}

    def copy(folder: RunFolder, cases: Sequence[Case]) -> None:
        reused = [case.id for case in cases if case.id in earlier]
        folder.save_meta(
            candidates=[*keys],
            broken=[key for key, candidate in keys.items() if candidate in broken],
            marks={key: list((marks or {}).get(each, ())) for key, each in keys.items()},
            reused={"folder": str(reuse), "cases": reused} if reused else None,
        )
        for number, outcome in (each for case in reused for each in earlier[case].items()):
            outcome.write(folder, number)

    return run_suite(plan.suite, out=out, reporter=reporter, before=copy)


def expected_s(suite: Suite) -> tuple[int, float]:
    """Number of cases in a comparison, and its approximate duration in seconds if each pass fits into the budget."""
    cases, measure = suite.cases(), suite.file.measure
    timed = sum(devices.has_clock(case.device) for case in cases)
    costs_s = COSTS_S + whole_s(suite.file.metrics, measure)
    return len(cases), costs_s * len(cases) + timed * (
        measure.processes * (2 * (measure.warmup_s + measure.sample_s) + PROCESS_S)
    )


def rankings(run: RunFolder, places: Mapping[str, Shape] | None = None) -> list[Ranking]:
    """The rows of a run as standings, for each input and condition; memory is what a GPU showed, else predicted.

    Rows of other executions are beside those of eager, where there are such. `places` are inputs by their names; the
    rows of several are in one ranking.
    """
    named = {shape: place for place, shape in (places or {}).items()}
    several = len(named) > 1
    conditions = [name for name in COLUMNS if not (several and name in SHAPE.columns)]
    candidates: list[str] = run.meta["candidates"]
    found: dict[tuple[Any, ...], dict[str, Ranking]] = {}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.rows():
        if row["module"] != EMPTY:  # a network without a module is no module's rival
            groups.setdefault(tuple(row[column] for column in conditions), []).append(row)
    for rows in groups.values():
        columns = {key: _column(each, rows) for key, each in quantities().items()}
        predicted = any(columns[key] == each.column for key, each in quantities().items() if each.measured_column)
        memory = "predicted for CUDA" if predicted else "measured on this device"
        swept = {module: _swept(rows, module) for module in candidates}
        standings = [_standing(row, columns, swept, named if several else {}) for row in rows]
        beside = tuple(rows[0][column] for column in conditions if column != "execution")
        name = named.get(_shape_of(rows[0]), "")
        where = f"{name.rpartition(':')[0] if several else name}: " if name else ""
        ranking = Ranking(f"{where}{_condition(rows[0], several)}", memory, standings, is_place=bool(name))
        found.setdefault(beside, {})[rows[0]["execution"]] = ranking
    return [ranking for own in found.values() for ranking in _beside_eager(own)]


def _beside_eager(by_execution: Mapping[str, Ranking]) -> Iterator[Ranking]:
    """The ranking of eager with the rows of the others; without eager each by itself."""
    if "eager" not in by_execution:
        yield from by_execution.values()
        return
    others = {name: ranking.standings for name, ranking in by_execution.items() if name != "eager"}
    yield replace(by_execution["eager"], others=others)


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


def _figures(file: SuiteFile, candidates: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    """The figure of an ablation: costs against the hyper-parameter with the most values, if one has several."""
    several = [(key, name, value) for key, own in candidates.items() for name, value in own.items()]
    several = [each for each in several if isinstance(each[2], list) and not any(isinstance(v, list) for v in each[2])]
    counts = {name: len(value) for _, name, value in several}
    own = [each for name in file.metrics for each in metrics()[name].quantities]
    costs = [each.key for each in own if each.on_front and not each.derive]
    if counts and costs and FIGURE not in [each.name for each in file.figures]:
        x, modules = max(counts, key=counts.__getitem__), listed(list(dict.fromkeys(key for key, *_ in several)))
        yield Figure(name=FIGURE, title=f"Costs of {modules} by {listed([*counts])}", x=x, y=costs)


def reusable(
    path: Path, suite: Suite, candidates: Collection[str], environment: Mapping[str, Any]
) -> dict[str, dict[int, CaseOutcome]]:
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
            found[case] = {n: CaseOutcome(record, {}, {}, imports=imports) for n, record in processes.items()}
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


def _with_streams(found: dict[str, dict[int, CaseOutcome]], folder: RunFolder) -> dict[str, dict[int, CaseOutcome]]:
    """The outcomes with their samples; process 0 with the memory over a pass."""
    for (case, number, mode), rows in by_values(folder.stream("samples.csv"), "case", "process", "mode").items():
        if outcome := found.get(case, {}).get(number):
            samples = [Sample(row["at_s"], row["passes"], row["ms"]) for row in rows]
            outcome.samples = {**outcome.samples, mode: samples}
    for (case, mode), rows in by_values(folder.stream("timeline.csv"), "case", "mode").items():
        if outcome := found.get(case, {}).get(0):
            timeline = [TimelineStep(row["step"], row["phase"], row["op"], row["bytes"]) for row in rows]
            outcome.timelines = {**outcome.timelines, mode: timeline}
    return found


def _condition(row: Mapping[str, Any], several: bool) -> str:
    """The conditions of a row in words, without its shape where there are several."""
    values = {name: [value] for name, value in from_columns(row).items()}
    return ", ".join(phrases({**values, SHAPE.name: []} if several else values))


def _shape_of(row: Mapping[str, Any] | RecordRow) -> Shape:
    batch, channels, height, width = (row[column] for column in SHAPE.columns)
    return batch, channels, height, width


def _swept(rows: Sequence[Mapping[str, Any]], module: str) -> list[str]:
    """The hyper-parameters in which rows of a module differ."""
    own = [json.loads(row["hparams"]) for row in rows if row["module"] == module]
    return [name for name in (own[0] if own else ()) if any(each.get(name) != own[0][name] for each in own)]


def _standing(
    row: RecordRow, columns: Mapping[str, str], swept: Mapping[str, Sequence[str]], places: Mapping[Shape, str]
) -> Standing:
    """A row as a standing; `swept` has the hyper-parameters in which rows of each candidate differ.

    `places` are the names of several inputs.
    """
    every, module = json.loads(row["hparams"]), str(row["module"])
    own = swept.get(module, ())

    def named(names: Sequence[str]) -> str:
        settings = ", ".join(f"{name}={every[name]}" for name in names)
        return f"{module} ({settings})" if settings else module

    changed = row["changed"].split()
    read = {key: read_number(row, quantities()[key], column) for key, column in columns.items()}
    return Standing(
        named([name for name in every if name in own or name in changed]),
        module in swept,
        {key: value for key, value in read.items() if value},
        str(row["status"]),
        str(row["message"]),
        module,
        named([name for name in changed if name not in own]),
        {name: str(every[name]) if isinstance(every[name], list) else every[name] for name in own},
        {key: [note.shared for note in row["notes"] if note.about == key] for key in columns},
        "; ".join(filter(None, map(short, row["notes"]))),
        f"{places[shape].rpartition(':')[2]} {[*shape]}" if (shape := _shape_of(row)) in places else "",
    )
