"""`ctxbench check --baseline`: the modules at hand against what an earlier run left."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ctxbench.api import machine
from ctxbench.engine import conditions
from ctxbench.engine.client import Zygote
from ctxbench.errors import UsageError
from ctxbench.gate.baseline import Baseline, Level, StoredCase, compare_exact, load_baseline, read_level, same_machine
from ctxbench.gate.check import conditions_phrase, exit_code, labels, suite_in_tree, unmeasured
from ctxbench.gate.finding import ExactChange, Finding
from ctxbench.gate.pairs import Progress, Round, Source, TimeBlock, Worker
from ctxbench.gate.request import Deadline, Request, row_name
from ctxbench.gate.rules import ExitCode, RowVerdict
from ctxbench.gate.stored import ProcessFailure, ProcessResult, run_stored
from ctxbench.gate.survey import STATIC_METRICS, measured, survey
from ctxbench.gate.trees import Tree, tree_here
from ctxbench.progress import QuietGate
from ctxbench.suite import Case, Measure, Suite

# Blocks of a row in a process, where pytest-benchmark has its rounds.
BLOCKS = 6


@dataclass
class LikeRun:
    """Measures rows as a run does, for `run_stored`: one fresh zygote a call, a child of it for each case.

    `metrics` are all of the run's: what a process has allocated before, as for measured memory, moves its latency.
    """

    tree: Path | None
    measure: Measure
    metrics: Sequence[str]
    rows: Mapping[str, tuple[Case, str]]
    progress: Progress
    seconds: list[float] = field(default_factory=list)

    def __call__(self, rows: Sequence[str]) -> Mapping[str, ProcessResult]:
        begin = time.monotonic()
        found: dict[str, dict[str, Any] | str] = {}
        results: dict[str, ProcessResult] = {}
        with Zygote(self.tree) as zygote:
            for index, row in enumerate(rows):
                self.progress(len(self.seconds), index, len(rows), row)
                case, mode = self.rows[row]
                if case.id not in found:
                    found[case.id] = measured(zygote, self.measure, self.metrics, case)
                values = found[case.id]
                results[row] = ProcessFailure(values) if isinstance(values, str) else _level_of(values, mode)
        self.seconds.append(time.monotonic() - begin)
        return results


@dataclass
class LikePytest:
    """Measures rows as pytest-benchmark does, for `run_stored`: in one fresh process, the control before and after."""

    source: Source
    measure: Measure
    progress: Progress
    launch: Callable[[Path | None], Worker] = Zygote
    seconds: list[float] = field(default_factory=list)

    def __call__(self, rows: Sequence[str]) -> Mapping[str, ProcessResult]:
        begin = time.monotonic()
        count = len(self.seconds)
        round_ = Round(
            (self.source,), self.measure, self.launch, lambda index, total, row: self.progress(count, index, total, row)
        )
        results = round_.take(rows, _level_around, _failure)
        self.seconds.append(time.monotonic() - begin)
        return results


def check_stored(path: Path, request: Request, progress: QuietGate | None = None) -> Finding:
    """What is at hand against the stored run `path`: its cases, or those of the modules that the request names.

    The modules are those of the git repository that holds the working folder, else the installed ones. Raises
    UsageError for a baseline that cannot be read, and for a module that neither has.
    """
    deadline = Deadline(request.budget_s)
    stored = load_baseline(path)
    tree = tree_here()
    suite = suite_in_tree(request.suite, tree) if tree else request.suite
    root = tree.root if tree else None
    notes = conditions.warnings({"busy_cores": conditions.busy_cores()})
    rows: list[RowVerdict] = []
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        shown.stage("what the baseline has")
        with Zygote(root) as zygote:
            environment = machine(zygote)
            cases = _cases(stored, suite, zygote, tree, rows)
            changes, compared, more = _compare(stored, suite, zygote, cases, environment, rows)
        asked = _to_time(stored, cases, len(environment["gpus"]), rows) if request.timed else {}
        rows[:0] = _time(stored, asked, root, request, deadline, shown, more)
    same, reason = same_machine(stored, environment)
    timed = request.timed and any(stored.cases[name].timed for name in cases)
    code = exit_code(rows, changes, compared, request.inconclusive_is, timed)
    grown = any(change.worse for change in changes)
    if not same and (code == ExitCode.INCONCLUSIVE or (code == ExitCode.REGRESSED and not grown)):
        code = ExitCode.OK
    timed_cases = [case for case, _ in asked.values()]
    return Finding(
        baseline=stored.name,
        candidate=tree.name if tree else "what is installed",
        rows=tuple(rows),
        labels=labels(each.case for each in stored.cases.values()),
        exact=tuple(changes),
        compared=compared,
        margin=request.rule(()).margin,
        conditions=conditions_phrase(environment, timed_cases or [_static(case) for case in cases.values()]),
        notes=tuple(dict.fromkeys([*notes, *([] if same else [reason]), *more])),
        elapsed_s=deadline.elapsed_s,
        exit_code=code,
        evidence="process",
        advisory=not same,
    )


def _level_of(values: Mapping[str, Any], mode: str) -> ProcessResult:
    return read_level(values, mode) or ProcessFailure("no interval of its latency could be measured")


def _level_around(block: TimeBlock) -> ProcessResult:
    """A row's latency over all blocks, in units of the control before and after them."""
    blocks = [block(0) for _ in range(BLOCKS)]
    control = math.log(statistics.median([*blocks[0]["control"], *blocks[-1]["control"]]))
    row = math.log(statistics.median([ms for each in blocks for ms in each["row"]]))
    return Level(row - control, control)


def _failure(messages: Sequence[str | None], process_ended: bool) -> ProcessResult:
    return ProcessFailure(messages[0] or "")


def _cases(
    stored: Baseline, suite: Suite, zygote: Zygote, tree: Tree | None, rows: list[RowVerdict]
) -> dict[str, Case]:
    """The baseline's cases that the request names, by their ids; verdicts on those that are not here go to `rows`."""
    if suite.file.modules == ["*"]:
        cases = {}
        for name, each in stored.cases.items():
            case = replace(each.case, reference=_absolute(each.case.reference))
            if tree and not _in_tree(case.reference, tree):
                reason = f"Its {case.reference} lies outside this repository; name it with --module path.py:Class."
                rows.append(unmeasured(name, "not compared", reason))
            else:
                cases[name] = case
        return cases
    found = survey(zygote, suite, "cpu", tree, None)
    for name in sorted(suite.named & found.missing.keys()):
        vanished = [case for case, each in stored.cases.items() if _is_named(each.case, name)]
        if not vanished:
            raise UsageError(found.missing[name])
        rows += [unmeasured(case, "broken", found.missing[name]) for case in vanished]
    references = {case.module: case.reference for case in found.cases.values()}
    for module in sorted(references.keys() - {each.case.module for each in stored.cases.values()}):
        rows.append(unmeasured(module, "not compared", "It is not in the baseline."))
    return {
        name: replace(each.case, reference=references[each.case.module])
        for name, each in stored.cases.items()
        if each.case.module in references
    }


def _absolute(reference: str) -> str:
    """A reference to a file, which pytest-benchmark's JSON has from the working folder, from the root."""
    source, colon, class_name = reference.rpartition(":")
    return f"{Path(source).resolve()}{colon}{class_name}" if source.endswith(".py") else reference


def _in_tree(reference: str, tree: Tree) -> bool:
    source = reference.rpartition(":")[0]
    return not source.endswith(".py") or Path(source).is_relative_to(tree.root.resolve())


def _is_named(case: Case, name: str) -> bool:
    """Whether a request's name of a module means that of a case, which may be from another copy of the repository."""
    return name in (case.module, case.reference) or case.reference.endswith(f"/{name}")


def _static(case: Case) -> Case:
    """The case where its exact quantities are counted."""
    return replace(case, device="meta")


def _compare(
    stored: Baseline,
    suite: Suite,
    zygote: Zygote,
    cases: Mapping[str, Case],
    environment: Mapping[str, Any],
    rows: list[RowVerdict],
) -> tuple[list[ExactChange], int, list[str]]:
    """The exact quantities that differ, the count of all, and notes; cases that fail now go to `rows`."""
    changes: list[ExactChange] = []
    compared = 0
    notes: list[str] = []
    for name, case in cases.items():
        each = stored.cases[name]
        values = measured(zygote, _measure_of(each, suite.file.measure), STATIC_METRICS, _static(case))
        if isinstance(values, str):
            worked = each.status == "ok" or each.exact
            rows.append(unmeasured(name, "broken" if worked else "not compared", values))
            continue
        comparison = compare_exact(stored, name, values, environment["packages"]["torch"])
        changes += comparison.changes
        compared += comparison.compared
        notes += comparison.notes
    return changes, compared, notes


def _to_time(
    stored: Baseline, cases: Mapping[str, Case], gpus: int, rows: list[RowVerdict]
) -> dict[str, tuple[Case, str]]:
    """The rows whose latency the baseline has and that can be timed here; verdicts on the others go to `rows`."""
    asked: dict[str, tuple[Case, str]] = {}
    settled = {row.row for row in rows}
    for name, case in cases.items():
        each = stored.cases[name]
        kind, _, index = case.device.partition(":")
        if name in settled:
            continue
        if each.status != "ok":
            rows.append(unmeasured(name, "not compared", f"It ended in {each.status} in the baseline."))
        elif each.timed and kind == "cuda" and int(index or 0) >= gpus:
            reason = f"It was measured on {case.device}; torch sees {gpus or 'no'} GPU here."
            rows.append(unmeasured(name, "not compared", reason))
        else:
            asked |= {row_name(case, mode): (case, mode) for mode, row in each.rows.items() if row.worked}
    return asked


def _time(
    stored: Baseline,
    asked: Mapping[str, tuple[Case, str]],
    root: Path | None,
    request: Request,
    deadline: Deadline,
    shown: QuietGate,
    notes: list[str],
) -> tuple[RowVerdict, ...]:
    """The verdicts on the latency rows `asked`, measured as the baseline was."""
    measure = stored.measure or request.suite.file.measure
    processes: LikeRun | LikePytest
    if stored.by_run:
        processes = LikeRun(root, measure, stored.metrics or request.suite.file.metrics, asked, shown.row)
    else:
        tasks = {name: {"case": asdict(case), "mode": mode} for name, (case, mode) in asked.items()}
        processes = LikePytest(Source(root, tasks), measure, shown.row)
    cases = {case.id: case for case, _ in asked.values()}
    rule = request.rule(cases.values())
    expected_s = sum(stored.cases[name].elapsed_s for name in cases)
    deadline.last_s = lambda: processes.seconds[-1] if processes.seconds else expected_s
    if asked and not deadline.has_time():
        notes.append(
            f"the baseline took {expected_s:.0f} s for these rows, and {rule.looks[0]} processes or more are needed; "
            "give more --budget, or fewer --modules"
        )
    levels = {name: stored.row(case.id, mode) for name, (case, mode) in asked.items()}
    return run_stored(list(asked), levels, processes, rule, deadline.has_time)


def _measure_of(stored: StoredCase, measure: Measure) -> Measure:
    """The settings under which memory is predicted for what the baseline's was."""
    target = stored.memory_predicted_for
    return measure.model_copy(update={"memory_device": target}) if target else measure
