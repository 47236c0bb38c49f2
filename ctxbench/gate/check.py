"""`ctxbench check --against`: every row of a suite in the working tree against the same row of another commit."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ctxbench.api import machine
from ctxbench.engine import conditions
from ctxbench.engine.client import Zygote
from ctxbench.errors import UsageError
from ctxbench.gate.finding import ExactChange, Finding
from ctxbench.gate.pairs import Pairs, Source
from ctxbench.gate.request import Deadline, InconclusiveIs, Request, row_name
from ctxbench.gate.rules import ExitCode, RowVerdict, Status, decide_gate, run_gate
from ctxbench.gate.survey import Survey, cost, exact_changes, survey
from ctxbench.gate.trees import Tree, baseline_tree, working_tree
from ctxbench.progress import QuietGate
from ctxbench.results import MODES
from ctxbench.suite import Case, Suite


def check_against(ref: str, request: Request, progress: QuietGate | None = None) -> Finding:
    """The working tree that holds the working folder, uncommitted changes included, against the commit `ref`.

    Raises UsageError outside a git repository, for a ref that it lacks, and for a module that neither side has.
    """
    deadline = Deadline(request.budget_s)
    here = working_tree(Path.cwd())
    suite = suite_in_tree(request.suite, here)
    notes = conditions.warnings({"busy_cores": conditions.busy_cores()})
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        shown.stage(f"taking {ref} out of the repository")
        there = stack.enter_context(baseline_tree(here, ref))
        shown.stage("what both sides have")
        before, now, environment = _survey_both(suite, there, here)
        rows: list[RowVerdict] = [*_vanished(before, now, there), *_unpaired(before, now)]
        settled = {row.row for row in rows}
        cases = [now.cases[case] for case in _common(before, now) if case not in settled]
        if request.timed:
            pairs = Pairs(
                Source(there.root, task_rows(before.cases[case.id] for case in cases)),
                Source(here.root, task_rows(cases)),
                suite.file.measure,
                shown.row,
            )
            deadline.last_s = lambda: pairs.seconds[-1] if pairs.seconds else 0.0
            rule = request.rule(cases)
            rows[:0] = run_gate(list(pairs.candidate.rows), pairs, rule, deadline.has_time, end_at_regression=True).rows
    changes, compared = exact_changes(before.quantities, now.quantities)
    return Finding(
        baseline=there.name,
        candidate=here.name,
        rows=tuple(rows),
        labels=labels([*before.cases.values(), *now.cases.values()]),
        exact=tuple(changes),
        compared=compared,
        margin=request.rule(()).margin,
        conditions=conditions_phrase(environment, cases),
        notes=(*notes, *_notes(before, now, request)),
        elapsed_s=deadline.elapsed_s,
        exit_code=exit_code(rows, changes, compared, request.inconclusive_is, request.timed),
    )


def suite_in_tree(suite: Suite, tree: Tree) -> Suite:
    """The suite with its modules' files named from the tree's root, so that each side finds its own."""

    def name_in_tree(name: str) -> str:
        source, colon, class_name = name.rpartition(":")
        if not source.endswith(".py"):
            return name
        path = Path(source).resolve()
        if not path.is_relative_to(tree.root.resolve()):
            raise UsageError(f"{source} lies outside the repository {tree.root}: no other commit has it")
        return path.relative_to(tree.root.resolve()).as_posix() + colon + class_name

    modules = [name_in_tree(name) for name in suite.file.modules]
    cases = [{**case, "module": name_in_tree(str(case.get("module", "")))} for case in suite.file.cases]
    return replace(suite, file=suite.file.model_copy(update={"modules": modules, "cases": cases}))


def _survey_both(suite: Suite, there: Tree, here: Tree) -> tuple[Survey, Survey, dict[str, Any]]:
    with Zygote(there.root) as there_zygote, Zygote(here.root) as here_zygote:
        environment = machine(here_zygote)
        device = "cuda" if environment["gpus"] else "cpu"
        before = survey(there_zygote, suite, device, there, here)
        now = survey(here_zygote, suite, device, here, there)
        for name in suite.named & now.missing.keys() & before.missing.keys():
            raise UsageError(now.missing[name])
        for zygote, side in ((there_zygote, before), (here_zygote, now)):
            cost(zygote, suite, side, _common(before, now))
    return before, now, environment


def _common(before: Survey, now: Survey) -> list[str]:
    """The cases whose modules are each tree's own."""
    theirs = before.own()
    return [case for case in now.own() if case in theirs]


def _vanished(before: Survey, now: Survey, there: Tree) -> list[RowVerdict]:
    ours = now.own()
    return [
        unmeasured(name, "broken", f"vanished: {now.why_missing(before.cases[name], there)}")
        for name in before.own()
        if name not in ours
    ]


def _unpaired(before: Survey, now: Survey) -> list[RowVerdict]:
    """Cases that are new, or whose static metrics already fail."""
    theirs = before.own()
    rows = [
        unmeasured(name, "not compared", f"new: {before.why_missing(now.cases[name], now.tree)}")
        for name in now.own()
        if name not in theirs
    ]
    for name in _common(before, now):
        if name in before.failures:
            rows.append(unmeasured(name, "not compared", before.failures[name]))
        elif name in now.failures:
            rows.append(unmeasured(name, "broken", now.failures[name]))
    return rows


def _notes(before: Survey, now: Survey, request: Request) -> list[str]:
    notes = []
    own = {*before.own(), *now.own()}
    outside = sorted({case.module for name, case in now.cases.items() if name not in own})
    if outside:
        notes.append(f"left out, because their files are not in this repository: {', '.join(outside)}")
    if not _common(before, now):
        notes.append("nothing was compared; name your modules with --module path.py:Class")
    if before.foreign:
        more = f" and {len(before.foreign) - 1} other files" if len(before.foreign) > 1 else ""
        notes.append(f"both sides share {before.foreign[0]}{more}: the baseline loads it from the working tree")
    margins = request.suite.file.gate.margins if request.margin is None else {}
    if margins:
        notes.append("margins of their own: " + ", ".join(f"{row} {margin:.3g}" for row, margin in margins.items()))
    return notes


def unmeasured(row: str, status: Status, reason: str) -> RowVerdict:
    """The verdict of a row or a case without a single pair."""
    nan, inf = float("nan"), float("inf")
    return RowVerdict(row, status, None, nan, -inf, inf, nan, 0, reason)


def task_rows(cases: Iterable[Case], inject: Mapping[str, float] | None = None) -> dict[str, dict[str, Any]]:
    """The latency rows of the cases as `engine.pair` takes them; `inject` slows single rows by a share."""
    return {
        row_name(case, mode): {
            "case": asdict(case),
            "mode": mode,
            "inject": (inject or {}).get(row_name(case, mode), 0.0),
        }
        for case in cases
        for mode in MODES
    }


def labels(cases: Iterable[Case]) -> dict[str, str]:
    """A short name for each row and each case: the module alone where that is enough."""
    unique = {case.id: case for case in cases}
    modules = [case.module for case in unique.values()]
    short = {name: case.module if modules.count(case.module) == 1 else name for name, case in unique.items()}
    rows = {row_name(case, mode): f"{short[name]} {mode}" for name, case in unique.items() for mode in MODES}
    return {**short, **rows}


def conditions_phrase(environment: Mapping[str, Any], cases: Sequence[Case]) -> str:
    """On what, with what and for which inputs the rows were measured."""
    devices = {case.device.partition(":")[0] for case in cases}
    parts = [environment["cpu"]] if "cpu" in devices else []
    if "cuda" in devices:
        parts += [
            ", ".join(dict.fromkeys(gpu["name"] for gpu in environment["gpus"])),
            f"driver {environment['driver']}",
        ]
    parts.append(f"torch {environment['packages']['torch']}")
    parts += sorted({str(list(case.shape)) for case in cases})
    parts += sorted({case.dtype for case in cases})
    threads = {case.threads if case.threads is not None else environment["torch_threads"] for case in cases}
    if "cpu" in devices:
        parts.append(", ".join(f"{count} thread{'s' * (count != 1)}" for count in sorted(threads)))
    return ", ".join(parts)


def exit_code(
    rows: Sequence[RowVerdict],
    changes: Sequence[ExactChange],
    compared: int,
    inconclusive_is: InconclusiveIs,
    timed: bool = True,
) -> ExitCode:
    """Of latency rows and exact quantities together: broken before regressed before inconclusive before ok.

    Without latency (not `timed`, or no row at all) the quantities that were compared are enough.
    """
    code = decide_gate(rows, inconclusive_is).exit_code
    if code != ExitCode.BROKEN and any(change.worse for change in changes):
        return ExitCode.REGRESSED
    if code == ExitCode.NOTHING_COMPARED and compared and not (rows and timed):
        return ExitCode.OK
    return code
