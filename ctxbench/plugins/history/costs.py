"""Costs of modules over commits: counted in each commit's own tree, or measured in runs of it."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.base.number import Number, ratio_of_runs, rough_ratio
from ctxbench.engine.cache import NO_CACHE_ENV, counting_code
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import QuietGate
from ctxbench.model.grid import Suite
from ctxbench.model.messages import Failure
from ctxbench.model.metrics import read_number, static_metrics, stored_quantities
from ctxbench.plugins.check.check import labels, suite_in_tree
from ctxbench.plugins.check.tree_cases import list_cases, measured
from ctxbench.plugins.check.trees import Commit, Tree, baseline_tree, commits, working_tree
from ctxbench.report.run_data import RunData, open_run
from ctxbench.results.csv_file import replace_file
from ctxbench.results.environment import differences
from ctxbench.results.rows import rows_of


@dataclass(frozen=True)
class Point:
    """A number at a commit, which is the `index`-th; `environment` is that of the run that measured it."""

    index: int
    number: Number
    environment: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Series:
    """A quantity of a case over the commits that have it, the oldest first. `quantity` is a key of a quantity."""

    case: str
    quantity: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Step:
    """A change from the commit before that has the number to the `index`-th: the later over the earlier."""

    index: int
    series: Series
    ratio: Number


@dataclass(frozen=True)
class History:
    """The commits, the oldest first, their series, and sentences on what is not there."""

    commits: tuple[Commit, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...]

    def steps(self) -> list[Step]:
        """Each change, the oldest first: of a count or prediction any, of a time one whose interval does not hold 1.

        Times of two machines, and times without an interval, are not held against each other.
        """
        found = [
            Step(after.index, series, ratio)
            for series in self.series
            for before, after in zip(series.points, series.points[1:], strict=False)
            if (ratio := _change(before, after))
        ]
        return sorted(found, key=lambda step: step.index)


def history(
    suite: Suite, span: str = "HEAD", last: int = 20, runs: Sequence[Path] = (), progress: QuietGate | None = None
) -> History:
    """The costs of a suite's modules over the last commits of a range in the repository around the working folder.

    Counts and predictions are each commit's own and kept for the next time; `runs` are folders of runs, whose times
    stand at the commit that their modules' files are of. Raises UsageError outside a repository, for an unknown range,
    and if no commit has a module.
    """
    here = working_tree(Path.cwd())
    suite = suite_in_tree(suite, here.root)
    found = tuple(commits(here, span, last))
    points: dict[tuple[str, str], list[Point]] = {}
    notes: dict[str, list[str]] = {}
    with progress or QuietGate() as shown:
        for index, commit in enumerate(found):
            shown.stage(f"commit {index + 1} of {len(found)}: {commit.short} {commit.subject}")
            numbers, missing = _costs(here, commit, suite)
            for case, quantities in numbers.items():
                for key, ends in quantities.items():
                    points.setdefault((case, key), []).append(Point(index, Number(*ends)))
            for reason in missing:
                notes.setdefault(reason, []).append(commit.short)
    if not points:
        raise UsageError(f"no commit of {span} has a cost of these modules: {next(iter(notes), 'they have no case')}")
    told = [f"{', '.join(where)}: {reason}" for reason, where in notes.items()]
    modules = {name.rpartition(":")[2] for name in suite.file.modules}
    for path in runs:
        told += _add_run(open_run(path), path, found, modules, points)
    series = (Series(*key, tuple(sorted(own, key=lambda point: point.index))) for key, own in points.items())
    return History(found, tuple(series), tuple(told))


def _change(before: Point, after: Point) -> Number | None:
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


# By case and quantity: a value, and the ends of its interval if it has one.
Costs = dict[str, dict[str, list[float]]]


def _costs(here: Tree, commit: Commit, suite: Suite) -> tuple[Costs, list[str]]:
    """Costs of each case at a commit, and reasons for modules or cases without any."""
    asked = json.dumps([commit.name, suite.file.model_dump(mode="json")], sort_keys=True)
    folder = user_cache_path("ctxbench") / "history" / counting_code()
    path = folder / f"{hashlib.sha256(asked.encode()).hexdigest()}.json"
    is_off = bool(os.environ.get(NO_CACHE_ENV))
    if not is_off:
        with suppress(OSError, ValueError):
            kept: Costs = json.loads(path.read_text(encoding="utf-8"))
            return kept, []
    with baseline_tree(here, commit.name) as tree:
        numbers, missing = _counted(tree, suite)
    if not (missing or is_off):
        with suppress(OSError):  # without it, the next time counts anew
            if not folder.exists():
                shutil.rmtree(folder.parent, ignore_errors=True)  # that of other code is of no more use
                folder.mkdir(parents=True)
            replace_file(path, json.dumps(numbers).encode())
    return numbers, missing


def _counted(tree: Tree, suite: Suite) -> tuple[Costs, list[str]]:
    numbers: Costs = {}
    with ForkServer(tree.root) as server:
        found = list_cases(server, suite, devices.META, tree)
        missing = [_in_short(reason).replace(f"{tree.root}{os.sep}", "") for reason in found.missing.values()]
        names = labels(found.cases.values())
        for name in found.own():
            case = found.cases[name]
            case = replace(case, device=devices.META) if devices.has_clock(case.device) else case
            record = measured(server, suite.file.measure, static_metrics(), case)
            if isinstance(record, Failure):
                missing.append(str(record))
                continue
            for each in stored_quantities():
                if (each.exact or each.has_interval) and (number := read_number(record, each)):
                    ends = number.ends if number.has_interval else ()
                    numbers.setdefault(names[name], {})[each.key] = [number.value, *ends]
    return numbers, missing


def _in_short(reason: str) -> str:
    """Of a sentence with a traceback, the sentence and what was raised."""
    first, *_, last = [*reason.splitlines()[:1], *reason.splitlines()[-1:]]
    return first if first == last else f"{first} {last.strip()}"


def _add_run(
    run: RunData,
    path: Path,
    found: Sequence[Commit],
    modules: set[str],
    points: dict[tuple[str, str], list[Point]],
) -> list[str]:
    """Put the measured times of a run at the commits of its modules' files; why it has none there."""
    sources = run.meta.get("sources") or {}
    names = [commit.name for commit in found]
    added = False
    for row in rows_of(run.frame):
        commit = (sources.get(row["module"]) or {}).get("commit")
        if row["module"] not in modules or commit not in names:
            continue
        for each in stored_quantities():
            number = read_number(row, each) if each.has_interval else None
            if number and number.origin == "measured":
                point = Point(names.index(commit), number, run.environment)
                points.setdefault((row["case"], each.key), []).append(point)
                added = True
    return [] if added else [f"{path} has no time of these modules at one of these commits, without changes"]
