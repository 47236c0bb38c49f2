"""Costs of modules over commits: counted in each commit's own tree, or measured in runs of it."""

import hashlib
import json
import os
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ctxbench import devices, registry
from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number, ratio_of_runs, rough_ratio
from ctxbench.engine.cache import Cache, installed_key, sheets_key
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan, measure_case
from ctxbench.engine.progress import Quiet
from ctxbench.model.grid import Suite
from ctxbench.model.messages import Failure
from ctxbench.model.metrics import read_number, static_metrics, stored_quantities
from ctxbench.plugins.history.imports import needed
from ctxbench.plugins.trees.tree_cases import labels, list_cases, suite_in_tree
from ctxbench.plugins.trees.trees import Commit, Tree, adapters_of, baseline_tree, commits, last_change, working_tree
from ctxbench.registry.reference import Reference
from ctxbench.report.run_data import RunData, open_run
from ctxbench.results.environment import differences
from ctxbench.results.sources import UNKNOWN, VARIABLE

ADAPT = "--adapter FILE gives each commit a file of your working tree, such as a wrapper of a block"
# What a person can set right: no other commit is asked.
WRONG = "error: UsageError: "
NO_FILE = "name them as path.py:Class of this repository"


@dataclass(frozen=True)
class CommitNumber:
    """A number at a commit, which is the `index`-th; `environment` is that of the run that measured it."""

    index: int
    number: Number
    environment: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class CostSeries:
    """A quantity of a case over the commits that have it, the oldest first. `quantity` is a key of a quantity."""

    case: str
    quantity: str
    points: tuple[CommitNumber, ...]


@dataclass(frozen=True)
class CostChange:
    """A change from the commit before that has the number to the `index`-th: the later over the earlier."""

    index: int
    series: CostSeries
    ratio: Number


@dataclass(frozen=True)
class History:
    """The commits, the oldest first, their series, and sentences on what is not there and on the last numbers.

    It is whole unless Ctrl-C ended it.
    """

    commits: tuple[Commit, ...]
    series: tuple[CostSeries, ...]
    notes: tuple[str, ...]
    is_whole: bool = True

    def steps(self) -> list[CostChange]:
        """Each change, the oldest first: of a count or prediction any, of a time one whose interval does not hold 1.

        Times of two machines, and times without an interval, are not held against each other.
        """
        found = [
            CostChange(after.index, series, ratio)
            for series in self.series
            for before, after in zip(series.points, series.points[1:], strict=False)
            if (ratio := _change(before, after))
        ]
        return sorted(found, key=lambda step: step.index)


def history(
    suite: Suite,
    span: str = "HEAD",
    last: int = 20,
    runs: Sequence[Path] = (),
    progress: Quiet | None = None,
    adapters: Sequence[str | Path] = (),
) -> History:
    """The costs of a suite's modules over the last commits of a range in the repository around the working folder.

    These are the `last` that changed a file which the modules import or read.
    Counts and predictions are each commit's own, and kept for the next time where no file outside of the commit was
    imported, other than of installed packages; `runs` are folders of runs, whose times stand at the commit that their
    modules' files are of. `adapters` are files of the working tree that each commit gets. Raises UsageError for a
    folder that is no run, outside a repository, for an unknown range, and if no commit has a module.
    """
    measured = [(path, open_run(path)) for path in runs]
    here = working_tree(Path.cwd())
    suite, kept = suite_in_tree(suite, here.root), adapters_of(here, adapters)
    every = commits(here, span)
    found: list[tuple[Commit, CommitCosts, list[str]]] = []
    is_whole = True
    with progress or Quiet() as shown:
        try:
            for each in _walk(here, suite, every, last, shown, kept):
                found.insert(0, each)
        except KeyboardInterrupt:
            is_whole = False
    points: dict[tuple[str, str], list[CommitNumber]] = {}
    notes: dict[str, list[str]] = {}
    remarks: list[str] = []
    for index, (commit, counted, missing) in enumerate(found):
        remarks = counted.remarks if counted.numbers else remarks
        for case, quantities in counted.numbers.items():
            for key, ends in quantities.items():
                points.setdefault((case, key), []).append(CommitNumber(index, Number(*ends)))
        for reason in missing:
            notes.setdefault(reason, []).append(commit.short)
    if not points and not is_whole:
        raise KeyboardInterrupt
    if not points:
        hint = f"; {ADAPT}" if named_files(suite) and not kept else ""
        raise UsageError(f"no commit of {span} has a cost of these modules: {next(iter(notes), NO_FILE)}{hint}")
    lines = [f"{', '.join(where)}: {reason}" for reason, where in notes.items()]
    modules = {registry.own_name(name) for name in suite.file.modules}
    names = [commit.name for commit in every[::-1]]
    places = [names.index(commit.name) for commit, _, _ in found]
    at = {name: bisect(places, index) - 1 for index, name in enumerate(names) if index >= places[0]}
    for path, run in measured:
        lines += _add_run(run, path, at, modules, points)
    series = (CostSeries(*key, tuple(sorted(own, key=lambda point: point.index))) for key, own in points.items())
    return History(tuple(commit for commit, _, _ in found), tuple(series), (*lines, *remarks), is_whole)


def _walk(
    here: Tree, suite: Suite, every: Sequence[Commit], last: int, shown: Quiet, adapters: Mapping[str, bytes]
) -> Iterator[tuple[Commit, "CommitCosts", list[str]]]:
    """The last commits that changed a file which the modules import or read, the newest first, and the costs there.

    Between two of them nothing differs: what is counted at the commit before one is the costs of the next. Of the
    oldest, whose files no commit of the range changed, that commit itself stands there.
    """
    places = {commit.name: index for index, commit in enumerate(every)}
    named, cache = named_files(suite), Cache("history")
    index = 0
    for number in range(last):
        shown.stage(f"commit {number + 1} of at most {last}: {every[index].short} {every[index].subject}")
        costs, missing = _costs(here, every[index], suite, adapters, cache)
        if number == 0 and missing and not costs.numbers and all(each.startswith(WRONG) for each in missing):
            raise UsageError(missing[0].removeprefix(WRONG))
        changed = places.get(last_change(here, every[index].name, {*costs.files, *named} - adapters.keys()), len(every))
        yield every[changed if changed < len(every) else index], costs, missing
        index = changed + 1
        if index >= len(every):
            return


def named_files(suite: Suite) -> list[str]:
    """The files that the suite's modules are named by, from the root of the tree."""
    return [each.source for each in map(Reference.parse, suite.file.modules) if each.is_file]


def _change(before: CommitNumber, after: CommitNumber) -> Number | None:
    """The later over the earlier number, if they differ and may be held against each other."""
    first, second = before.number, after.number
    if first.value == second.value or not first.value:
        return None
    if before.environment is None or after.environment is None:
        return rough_ratio(second.value / first.value)
    if differences(before.environment, after.environment):
        return None
    ratio = ratio_of_runs(second, first)
    return ratio if ratio.has_interval and not ratio.low <= 1 <= ratio.high else None


@dataclass
class CommitCosts:
    """Costs by case and quantity: a value, and the ends of its interval if it has one; and remarks on them.

    `files` of the tree, named from its root, are needed for them: read, or imported by the module's file and what that
    imports; "." is any of them.
    """

    numbers: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def _costs(
    here: Tree, commit: Commit, suite: Suite, adapters: Mapping[str, bytes], cache: Cache
) -> tuple[CommitCosts, list[str]]:
    """Costs of each case at a commit, and reasons for modules or cases without any."""
    file = suite.file
    named = [*file.axes.device, *(str(case["device"]) for case in file.cases if "device" in case)]
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in adapters.items()}
    asked = json.dumps([commit.name, file.model_dump(mode="json"), digests], sort_keys=True).encode()
    sheets = sheets_key(name for name in named if name != "auto")
    key = asked + sheets + installed_key()
    if kept := cache.read(key):
        return CommitCosts(**json.loads(kept)), []
    with baseline_tree(here, commit.name, adapters) as tree:
        costs, missing, is_whole = _counted(tree, suite)
    if is_whole and not missing:
        cache.write(key, json.dumps(vars(costs)).encode())
    return costs, missing


def _counted(tree: Tree, suite: Suite) -> tuple[CommitCosts, list[str], bool]:
    """The costs in a tree, why some are missing, and whether all that was read for them lies in the tree."""
    costs = CommitCosts()
    imports: set[str] = set()
    with ForkServer(tree.root) as server:
        found = list_cases(server, suite, devices.META, tree)
        missing = [_in_short(reason).replace(f"{tree.root}{os.sep}", "") for reason in found.missing.values()]
        names = labels(found.cases.values())
        for name in found.own():
            case = found.cases[name]
            case = replace(case, device=devices.META) if devices.has_clock(case.device) else case
            outcome = measure_case(case, Plan(suite.file.measure, static_metrics(), force=True), server)
            record = outcome.record
            imports |= outcome.imports.keys()
            if record.status != "ok":
                missing.append(str(Failure(record.status, record.message)))
                continue
            for each in stored_quantities():
                if (each.exact or each.has_interval) and (number := read_number(record, each)):
                    ends = number.ends if number.has_interval else ()
                    costs.numbers.setdefault(names[name], {})[each.key] = [number.value, *ends]
                    texts = [note.shared for note in record.notes if note.about == each.key]
                    costs.remarks += [each for each in texts if each not in costs.remarks]
    root = tree.root.resolve()
    read = [each for each in imports if not each.startswith(VARIABLE)]  # the key has all variables
    paths = [Path(each).resolve() for each in read]
    inside = sorted(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root))
    costs.files = ["."] if any(each.startswith(UNKNOWN) for each in read) else inside
    if costs.files == inside and not any(case.network for case in found.cases.values()):
        own = [Path(each).resolve() for each in found.files.values()]
        start = {*named_files(suite), *(each.relative_to(root).as_posix() for each in own if each.is_relative_to(root))}
        python = {each for each in inside if each.endswith(".py")}
        costs.files = sorted(({*inside} - python) | needed(root, start, python))
    return costs, missing, len(inside) == len(paths)


def _in_short(reason: str) -> str:
    """Of a sentence with a traceback, the sentence and what was raised."""
    first, *_, last = [*reason.splitlines()[:1], *reason.splitlines()[-1:]]
    return first if first == last else f"{first} {last.strip()}"


def _add_run(
    run: RunData,
    path: Path,
    at: Mapping[str, int],
    modules: set[str],
    points: dict[tuple[str, str], list[CommitNumber]],
) -> list[str]:
    """Put the measured times of a run at the row of its modules' commit, which `at` has; why it has none there."""
    sources = run.meta.get("sources") or {}
    added = False
    for row in run.rows:
        index = at.get(f"{(sources.get(row['module']) or {}).get('commit')}")
        if row["module"] not in modules or index is None:
            continue
        for each in stored_quantities():
            number = read_number(row, each) if each.has_interval else None
            if number and number.origin == "measured":
                point = CommitNumber(index, number, run.environment)
                points.setdefault((row["case"], each.key), []).append(point)
                added = True
    return [] if added else [f"{path} has no time of these modules at one of these commits, without changes"]
