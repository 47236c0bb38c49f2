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
    """Measures rows as a run does, for `run_stored`: one fresh zygote a call, a child of it for each case."""

    tree: Path | None
    measure: Measure
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
                    found[case.id] = measured(zygote, self.measure, ["latency"], case)
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
            cases = _cases(stored, suite, zygote, tree, environment, rows)
            changes, compared, more = _compare(stored, suite, zygote, cases, environment, rows)
        same, reason = same_machine(stored, environment)
        failed = {row.row for row in rows}
        asked = {
            row_name(case, mode): (case, mode)
            for name, case in cases.items()
            for mode in stored.cases[name].rows
            if request.timed and case.device != "meta" and name not in failed
        }
        processes: LikeRun | LikePytest
        if stored.by_run:
            processes = LikeRun(root, stored.measure or suite.file.measure, asked, shown.row)
        else:
            tasks = {name: {"case": asdict(case), "mode": mode} for name, (case, mode) in asked.items()}
            processes = LikePytest(Source(root, tasks), suite.file.measure, shown.row)
        deadline.last_s = lambda: processes.seconds[-1] if processes.seconds else 0.0
        levels = {name: stored.row(case.id, mode) for name, (case, mode) in asked.items()}
        rows[:0] = run_stored(list(asked), levels, processes, request.rule(cases.values()), deadline.has_time)
    code = exit_code(rows, changes, compared, request.inconclusive_is)
    if not same and code in (ExitCode.REGRESSED, ExitCode.INCONCLUSIVE):
        code = ExitCode.OK
    return Finding(
        baseline=stored.name,
        candidate=tree.name if tree else "what is installed",
        rows=tuple(rows),
        labels=labels(each.case for each in stored.cases.values()),
        exact=tuple(changes),
        compared=compared,
        margin=request.rule(()).margin,
        conditions=conditions_phrase(environment, list(cases.values())),
        notes=tuple(dict.fromkeys([*notes, *([] if same else [reason]), *more])),
        elapsed_s=deadline.elapsed_s,
        exit_code=code,
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
    stored: Baseline,
    suite: Suite,
    zygote: Zygote,
    tree: Tree | None,
    environment: Mapping[str, Any],
    rows: list[RowVerdict],
) -> dict[str, Case]:
    """The baseline's cases that can be measured here, by their ids; verdicts on the others go to `rows`."""
    references: dict[str, str] = {}
    if suite.file.modules != ["*"]:
        found = survey(zygote, suite, "cpu", tree, None)
        references = {case.module: case.reference for case in found.cases.values()}
        known = {each.case.module for each in stored.cases.values()}
        for name, reason in found.missing.items():
            if name not in known:
                raise UsageError(reason)
            references[name] = name
        for module in references.keys() - known:
            rows.append(unmeasured(module, "not compared", "It is not in the baseline."))
    cases = {}
    for name, each in stored.cases.items():
        case = each.case
        if references and case.module not in references:
            continue
        if case.device.startswith("cuda") and not environment["gpus"]:
            rows.append(unmeasured(name, "not compared", f"It was measured on {case.device}; torch sees no GPU here."))
            continue
        cases[name] = replace(case, reference=references.get(case.module, case.reference))
    return cases


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
        values = measured(zygote, _measure_of(each, suite.file.measure), STATIC_METRICS, replace(case, device="meta"))
        if isinstance(values, str):
            rows.append(unmeasured(name, "broken" if each.status == "ok" else "not compared", values))
            continue
        comparison = compare_exact(stored, name, values, environment["packages"]["torch"])
        changes += comparison.changes
        compared += comparison.compared
        notes += comparison.notes
    return changes, compared, notes


def _measure_of(stored: StoredCase, measure: Measure) -> Measure:
    """The settings under which memory is predicted for what the baseline's was."""
    target = stored.memory_predicted_for
    return measure.model_copy(update={"memory_device": target}) if target else measure
