"""`ctxbench check --against`: every row of a suite in the working tree against the same row of another commit."""

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import QuietGate
from ctxbench.engine.run import machine
from ctxbench.model.case import Case
from ctxbench.plugins.check.agreement import compare_outputs
from ctxbench.plugins.check.check import Check, task_rows
from ctxbench.plugins.check.pairs import Pairs, Source
from ctxbench.plugins.check.request import Request
from ctxbench.plugins.check.result import GateResult, OutputVerdict
from ctxbench.plugins.check.rows import RowKey, RowVerdict, failed_now, unmeasured
from ctxbench.plugins.check.rules import NO_TIME, UNCONFIRMED, run_gate
from ctxbench.plugins.check.tree_cases import TreeCases, count_exact, exact_changes, list_cases, with_old_names
from ctxbench.plugins.check.trees import Tree, baseline_tree, working_tree


def check_against(ref: str, request: Request, progress: QuietGate | None = None) -> GateResult:
    """The working tree around the working folder, uncommitted changes included, against the commit `ref`.

    Raises UsageError outside a git repository, for a ref that it lacks, and for a module that neither side has.
    """
    here = working_tree(Path.cwd())
    check = Check(request, here)
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        shown.stage(f"writing the files of {ref}")
        there = stack.enter_context(baseline_tree(here, ref))
        shown.stage("listing the cases of both sides")
        before, now, outputs, environment = _cases_of_both(check, there, here, shown)
        rows = _not_timed(before, now)
        settled = {row.row.case for row in rows}
        cases = [now.cases[case] for case in _common(before, now) if case not in settled]
        if request.timed:
            rows[:0] = _time(check, before, now, cases, shown)
    changes, compared = exact_changes(before.exact, now.exact)
    check.notes += _notes(before, now, check.request)
    named = [*before.cases.values(), *now.cases.values()]
    return check.result(
        there.name, rows, environment, cases, named, changes, compared, timed=request.timed, outputs=outputs
    )


def _time(
    check: Check, before: TreeCases, now: TreeCases, cases: list[Case], shown: QuietGate
) -> tuple[RowVerdict, ...]:
    """The verdicts on the latency of the cases."""
    pairs = Pairs(
        Source(before.tree.root, task_rows({case.id: before.cases[case.id] for case in cases})),
        Source(now.tree.root, task_rows({case.id: case for case in cases})),
        check.suite.file.measure,
        progress=shown.row,
    )
    check.deadline.seconds = pairs.seconds
    rule = check.request.rule(cases)
    rows = run_gate(list(pairs.candidate.rows), pairs, rule, check.deadline.has_time, end_at_regression=True)
    if any(row.reason.startswith((NO_TIME, UNCONFIRMED)) for row in rows) and pairs.seconds:
        # The last look, and a confirmation run as long.
        minutes = math.ceil(2 * rule.looks[-1] * pairs.seconds[0] / 60)
        check.notes.append(f"a pair of processes took {pairs.seconds[0]:.0f} s; --budget {minutes}m is always enough")
    return rows


def _cases_of_both(
    check: Check, there: Tree, here: Tree, shown: QuietGate
) -> tuple[TreeCases, TreeCases, list[OutputVerdict], dict[str, Any]]:
    """The cases of both trees, with new names of classes that were renamed, what their outputs say, and the machine."""
    suite, renamed = check.suite, check.request.renamed
    with ForkServer(there.root) as there_server, ForkServer(here.root) as here_server:
        environment = machine(here_server)
        device = devices.auto(environment)
        before = list_cases(there_server, with_old_names(suite, renamed), device, there, here).renamed(renamed)
        now = list_cases(here_server, suite, device, here, there)
        for name in suite.named & now.missing.keys() & before.missing.keys():
            raise UsageError(now.missing[name])
        for server, side in ((there_server, before), (here_server, now)):
            count_exact(server, suite, side, _common(before, now))
        shown.stage("comparing outputs and gradients of both sides")
        outputs = compare_outputs(
            (there_server, here_server), (before, now), _common(before, now), suite.file.measure, environment
        )
    return before, now, outputs, environment


def _common(before: TreeCases, now: TreeCases) -> list[str]:
    """The cases whose modules are each tree's own."""
    theirs = before.own()
    return [case for case in now.own() if case in theirs]


def _not_timed(before: TreeCases, now: TreeCases) -> list[RowVerdict]:
    """The verdicts on cases that one side lacks, or whose exact costs cannot be had."""
    ours, theirs, common = now.own(), before.own(), _common(before, now)
    vanished = {name: now.why_missing(before.cases[name], before.tree) for name in theirs if name not in ours}
    new = {name: before.why_missing(now.cases[name], now.tree) for name in ours if name not in theirs}
    rows = [unmeasured(RowKey(name), "broken", f"vanished: {reason}") for name, reason in vanished.items()]
    rows += [unmeasured(RowKey(name), "not compared", f"new: {reason}") for name, reason in new.items()]
    for name in common:
        if name in before.failures:
            rows.append(unmeasured(RowKey(name), "not compared", str(before.failures[name])))
        elif name in now.failures:
            rows.append(failed_now(RowKey(name), now.failures[name]))
    return rows


def _notes(before: TreeCases, now: TreeCases, request: Request) -> list[str]:
    notes = []
    own = {*before.own(), *now.own()}
    outside = sorted({case.module for name, case in now.cases.items() if name not in own})
    if outside:
        notes.append(f"left out, because their files are not in this repository: {', '.join(outside)}")
    if not _common(before, now):
        notes.append("nothing was compared; name your modules with --module path.py:Class or --modules KEY")
    if before.foreign:
        more = f" and {len(before.foreign) - 1} other files" if len(before.foreign) > 1 else ""
        notes.append(f"both sides share {before.foreign[0]}{more}: the baseline loads it from the working tree")
    margins = request.suite.file.gate.margins if request.margin is None else {}
    if margins:
        notes.append("margins of their own: " + ", ".join(f"{row} {margin:.3g}" for row, margin in margins.items()))
    return notes
