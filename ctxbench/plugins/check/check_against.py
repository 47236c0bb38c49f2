"""`ctxbench check --against`: every row of a suite in the working tree against the same row of another commit."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.base.texts import listed
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import Quiet
from ctxbench.engine.remote import ask
from ctxbench.engine.run import machine
from ctxbench.model.case import Case, Measure
from ctxbench.plugins.check.agreement import compare_outputs
from ctxbench.plugins.check.check import PairCheck, task_rows
from ctxbench.plugins.check.exact import count_exact, exact_changes
from ctxbench.plugins.check.operators import differing, operators
from ctxbench.plugins.check.power import sentence
from ctxbench.plugins.check.predicted import launch_changes, predicted_passes, predicted_rows, sheet_of
from ctxbench.plugins.check.request import LISTING, Request
from ctxbench.plugins.check.result import GateResult, OutputVerdict
from ctxbench.plugins.check.rows import Estimate, RowKey, RowVerdict, Status, failed_now, unmeasured
from ctxbench.plugins.check.wire import PredictedPass
from ctxbench.plugins.trees.tree_cases import TreeCases, labels, list_cases, with_old_names
from ctxbench.plugins.trees.trees import Tree, adapters_of, baseline_tree, working_tree
from ctxbench.registry.reference import Reference

EXACT, PREDICTED_TIMES, OUTPUTS = "exact costs", "launches and predicted times", "outputs"
OPERATORS = "operators"
# The first case of these may begin in the overrun: they need no clock, and decide beside any load.
SURE = (EXACT, PREDICTED_TIMES)
SPENT = "the budget was spent"
MOST_NAMES = 5
WRAPPER = " (if it wraps a block that is there: --adapter {source})"
UNCHANGED = "The same code and the same outputs: nothing to time."


def check_against(ref: str, request: Request, progress: Quiet | None = None) -> GateResult:
    """The working tree around the working folder, uncommitted changes included, against the commit `ref`.

    Raises UsageError outside a git repository, for a ref that it lacks, and for a module that neither side has.
    """
    here = working_tree(Path.cwd())
    return _CommitCheck(request, here, ref).run(progress)


class _CommitCheck(PairCheck):
    """A check of the working tree against the commit `ref`."""

    def __init__(self, request: Request, here: Tree, ref: str) -> None:
        super().__init__(request, here)
        self.tree, self.ref = here, ref
        self.adapters = adapters_of(here, request.adapters)
        self.why: dict[str, str] = {}
        self.unreached: dict[str, Sequence[str]] = {}
        self.predicted: dict[str, Sequence[PredictedPass]] = {}

    def prepare(self, stack: ExitStack, shown: Quiet) -> None:
        shown.stage(f"writing the files of {self.ref}")
        there = stack.enter_context(baseline_tree(self.tree, self.ref, self.adapters))
        self.baseline = there.name
        self.deadline.ended(f"writing the files of {self.ref}")
        shown.stage("listing the cases of both sides")
        before, now = self._cases_of_both(there, shown)
        self.deadline.ended(OPERATORS)
        self.before = before
        self.rows = _not_timed(before, now)
        settled = {row.row.case for row in self.rows}
        self.cases = {case: now.cases[case] for case in _common(before, now) if case not in settled}
        self.exact, self.compared = exact_changes(before.exact, now.exact)
        self.unchanged = now.unchanged - settled - {change.case for change in self.exact}
        lost = dict.fromkeys(change.case for change in self.exact if change.candidate is None)
        self.notes += [f"{now.cases[case].module}: {note}" for case in lost for note in now.notes[case]]
        self.notes += _notes(before, now, self.request)
        self._add_predicted(now)
        self.named = [*before.cases.values(), *now.cases.values()]

    def time(self, shown: Quiet) -> Sequence[RowVerdict]:
        before = {case: self.before.cases[case] for case in self.cases}
        rows = self.time_pairs((self.before.tree.root, before), shown, end_at_regression=True)
        self.notes += filter(None, [sentence(self.spreads)])
        unchanged = task_rows({name: case for name, case in self.cases.items() if name in self.unchanged})
        return [*rows, *(Estimate().verdict(row, "measured", "ok", UNCHANGED) for row in unchanged)]

    def _result(self, rows: Sequence[RowVerdict]) -> GateResult:
        worse = {row.row.case for row in rows if row.verdict == "regressed"}
        worse |= {change.case for change in self.exact if change.worse}
        names = labels(self.named)
        for what, cases in self.unreached.items():
            left = listed([names[case] for case in cases], MOST_NAMES)
            self.notes.append(f"{SPENT} before the {what} of {left} were compared")
        self.notes += [f"{names[name]}: {why}" for name, why in self.why.items() if why and name in worse]
        return super()._result(rows)

    def _cases_of_both(self, there: Tree, shown: Quiet) -> tuple[TreeCases, TreeCases]:
        """The cases of both trees, with new names of classes that were renamed; and what their outputs say."""
        suite, renamed, here = self.suite, self.request.renamed, self.tree
        with ForkServer(there.root) as there_server, ForkServer(here.root) as here_server:
            self.environment = machine(here_server)
            device = devices.auto(self.environment)
            # Whether a file may name code is a question of the working tree, not of the commit's folder.
            refused = ask(here_server, "refused", str, sorted(suite.named), str(suite.path.absolute())).told
            trusted = replace(with_old_names(suite, renamed), chosen=suite.chosen or not any(refused))
            before = list_cases(there_server, trusted, device, there, here).renamed(renamed)
            now = list_cases(here_server, suite, device, here, there)
            for name in suite.named & now.missing.keys() & before.missing.keys():
                raises = name in now.raising and name in before.raising
                if not raises and self.request.inconclusive_is != "skip":
                    raise UsageError(now.missing[name])
                self.notes.append(f"neither side {'can load' if raises else 'has'} {name}: {now.missing[name]}")
            self.deadline.ended(LISTING)
            common, servers = _common(before, now), (there_server, here_server)
            added = [name for name in now.own() if name not in before.own()]
            shown.stage("counting exact costs of both sides")
            again = _beside_measured(now.cases)
            for name in self._in_time(EXACT, [name for name in (*common, *added) if name not in again]):
                for server, side in zip(servers, (before, now), strict=True):
                    count_exact(server, suite, side, [name] if name in side.own() else [])
            self.deadline.ended(EXACT)
            to_predict = [name for name in common if sheet_of(now.cases[name])]
            for name in self._in_time(PREDICTED_TIMES, to_predict):
                cases = before.cases[name], now.cases[name]
                self.predicted[name] = predicted_passes(servers, cases, self._measure())
            lost = [name for name in to_predict if not self.predicted.get(name)]
            if lost and self.deadline.latest_s <= 0:
                self.unreached[PREDICTED_TIMES] = lost
            self.deadline.ended(PREDICTED_TIMES)
            common = [name for name in common if name not in again]
            shown.stage("comparing outputs and gradients of both sides")
            in_time, sides = self._in_time(OUTPUTS, common), (before, now)
            self.outputs = compare_outputs(servers, sides, in_time, self._measure, self.environment)
            self.deadline.ended(OUTPUTS)
            self.outputs += [OutputVerdict(name, "not compared", SPENT) for name in self.unreached.get(OUTPUTS, ())]
            for name in self._in_time(OPERATORS, [name for name in common if name not in now.unchanged]):
                limit_s = self._measure().timeout_s
                self.why[name] = differing(
                    operators(there_server, before.cases[name], limit_s),
                    operators(here_server, now.cases[name], limit_s),
                )
        return before, now

    def _measure(self) -> Measure:
        """The suite's settings, with a time limit that ends with the check's."""
        measure = self.suite.file.measure
        return measure.model_copy(update={"timeout_s": self.deadline.cut(measure.timeout_s)})

    def _add_predicted(self, now: TreeCases) -> None:
        """Add the launches and predicted times of both sides."""
        for name, passes in self.predicted.items():
            changes, compared = launch_changes(name, passes)
            self.exact += changes
            self.compared += compared
            self.rows += predicted_rows(name, now.cases[name], passes, self.request.predicted_margin)

    def _in_time(self, what: str, names: Sequence[str]) -> Iterator[str]:
        """The names as long as the budget lasts, and the others into `unreached`."""
        reached = 0
        for name in self.deadline.steps(names, what in SURE):
            reached += 1
            yield name
        if reached < len(names):
            self.unreached[what] = names[reached:]


def _common(before: TreeCases, now: TreeCases) -> list[str]:
    """The cases whose modules are each tree's own."""
    theirs = before.own()
    return [case for case in now.own() if case in theirs]


def _beside_measured(cases: Mapping[str, Case]) -> set[str]:
    """The cases on a device that is not here that stand here on one with a clock, too, where all else is compared."""
    ids = {name: replace(case, device=devices.META, threads=None).id for name, case in cases.items()}
    measured = {ids[name] for name, case in cases.items() if devices.has_clock(case.device)}
    return {name for name, case in cases.items() if not devices.has_clock(case.device) and ids[name] in measured}


def _not_timed(before: TreeCases, now: TreeCases) -> list[RowVerdict]:
    """The verdicts on cases that one side lacks, or whose exact costs are not known."""
    ours, theirs, common = now.own(), before.own(), _common(before, now)
    vanished = {name: now.why_missing(before.cases[name], before.tree) for name in theirs if name not in ours}
    rows = [unmeasured(RowKey(name), "broken", f"vanished: {reason}") for name, reason in vanished.items()]
    for name in (name for name in ours if name not in theirs):
        reason = before.why_missing(now.cases[name], now.tree).replace(f"{before.tree.root}{os.sep}", "")
        if name in before.cases:
            rows.append(unmeasured(RowKey(name), "not compared", f"in {before.tree.name}, {reason}"))
        else:
            source = Reference.parse(now.cases[name].reference).source.removeprefix(f"{now.tree.root}{os.sep}")
            is_there = before.tree.root and (before.tree.root / source).exists()
            hint = "" if is_there else WRAPPER.format(source=source)
            rows.append(_added(name, "ok (new)", f"in {before.tree.name}, {reason}{hint}", now))
    for name in common:
        if name in before.failures:
            reason = f"{before.tree.name} fails: {before.failures[name]}"
            rows.append(_added(name, "ok (repaired)", reason, now))
        elif name in now.failures:
            rows.append(failed_now(RowKey(name), now.failures[name]))
    return rows


def _added(name: str, status: Status, why: str, now: TreeCases) -> RowVerdict:
    """The verdict on a case that the baseline lacks or cannot run: what it costs now, or that it fails now, too."""
    if name in now.failures:
        return unmeasured(RowKey(name), "not compared", f"{why}; {now.tree.name} fails: {now.failures[name]}")
    costs = ", ".join(
        f"{column.replace('_', ' ')} {value:,}" for column, value in now.exact.get(name, {}).items() if value
    )
    return unmeasured(RowKey(name), status, f"{why}; now {costs}" if costs else why)


def _notes(before: TreeCases, now: TreeCases, request: Request) -> list[str]:
    notes = []
    own = {*before.own(), *now.own()}
    outside = sorted({case.module for name, case in now.cases.items() if name not in own})
    if outside:
        notes.append(f"left out, because their files are not in this repository: {', '.join(outside)}")
    if not own:
        is_told = any(":" in name for name in request.suite.named)
        advice = "" if is_told else "; name your modules with --module path.py:Class or --modules KEY"
        notes.append(f"nothing was compared{advice}")
    if before.foreign:
        more = f" and {len(before.foreign) - 1} other files" if len(before.foreign) > 1 else ""
        notes.append(f"both sides share {before.foreign[0]}{more}: the baseline loads it from the working tree")
    margins = request.suite.file.gate.margins if request.margin is None else {}
    if margins:
        notes.append("rows with another margin: " + ", ".join(f"{row} {margin:.3g}" for row, margin in margins.items()))
    return notes
