"""The one flow of a check: two sides are prepared, evidence is collected, one rule judges, one result comes out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.base import clocks as this_machine
from ctxbench.base import load as machine_load
from ctxbench.base.mode import MODES
from ctxbench.engine.progress import Quiet
from ctxbench.model.case import Case
from ctxbench.model.conditions import CONDITIONS, phrases
from ctxbench.plugins.check.evidence import PairEvidence
from ctxbench.plugins.check.pairs import Pairs, Source, best_pair_s
from ctxbench.plugins.check.power import Spread, affordable_look, spreads
from ctxbench.plugins.check.request import Deadline, Request
from ctxbench.plugins.check.result import EvidenceKind, ExactChange, GateResult, OutputVerdict, exit_code
from ctxbench.plugins.check.rows import RowKey, RowVerdict
from ctxbench.plugins.check.rules import GateRule, judge
from ctxbench.plugins.check.wire import PairRow
from ctxbench.plugins.trees.tree_cases import labels, suite_in_tree
from ctxbench.plugins.trees.trees import Modules


class RunningCheck(ABC):
    """A check under way, of what is `here` against a baseline of one kind.

    `prepare` fills in what follows: the name of the `baseline`, the machine, the cases that are to be timed (`cases`)
    and all that the result speaks of (`named`), the verdicts on rows that are not timed, and what needs no clock. The
    request's suite names its files from the root of the tree; the budget runs from here.
    """

    baseline = ""
    kind: EvidenceKind = "pair"
    environment: Mapping[str, Any]
    cases: Mapping[str, Case]
    named: Iterable[Case]
    compared = 0
    # Whether latency decides at all; in an advisory result it is shown alone.
    timed = True
    advisory = False
    unreached: Collection[str] = ()

    def __init__(self, request: Request, here: Modules) -> None:
        self.deadline = Deadline(request.budget_s, request.begun_s)
        self.deadline.ended("reading the suite")
        self.limits = request.limits()
        self.here = here
        self.suite = suite_in_tree(request.suite, here.root) if here.root else request.suite
        self.request = replace(request, suite=self.suite)
        self.notes = [str(note) for note in machine_load.notes({"busy_cores": this_machine.here.busy_cores()})]
        self.rows: list[RowVerdict] = []
        self.exact: list[ExactChange] = []
        self.outputs: list[OutputVerdict] = []
        self.slowed: Mapping[RowKey, float] = {}

    @abstractmethod
    def prepare(self, stack: ExitStack, shown: Quiet) -> None:
        """Prepare both sides, and compare what needs no clock."""

    @abstractmethod
    def time(self, shown: Quiet) -> Sequence[RowVerdict]:
        """The verdicts on the latency of the cases."""

    def run(self, progress: Quiet | None = None) -> GateResult:
        with ExitStack() as stack:
            shown = stack.enter_context(progress or Quiet())
            self.prepare(stack, shown)
            timed = self.time(shown) if self.request.timed else ()
            self.deadline.ended("times")
        return self._result([*timed, *self.rows])

    def _result(self, rows: Sequence[RowVerdict]) -> GateResult:
        exact = [replace(each, limit=self.limits.get(each.quantity)) for each in self.exact]
        must_match = self.request.must_match
        code = exit_code(
            rows,
            exact,
            self.compared,
            inconclusive_is=self.request.inconclusive_is,
            timed=self.request.timed and self.timed,
            advisory=self.advisory,
            slowed=self.slowed,
            outputs=self.outputs if must_match else (),
            is_whole=not self.unreached,
        )
        return GateResult(
            baseline=self.baseline,
            candidate=self.here.name,
            rows=tuple(rows),
            labels=labels(self.named),
            exact=tuple(exact),
            compared=self.compared,
            margin=self.request.rule(()).margin,
            conditions=conditions_phrase(self.environment, list(self.cases.values())),
            notes=tuple(dict.fromkeys(self.notes)),
            elapsed_s=self.deadline.elapsed_s,
            budget_s=self.request.budget_s,
            spent=self.deadline.spent,
            exit_code=code,
            evidence=self.kind,
            advisory=self.advisory,
            outputs=tuple(self.outputs),
            must_match=must_match,
        )


class PairCheck(RunningCheck):
    """A check whose evidence is pairs of processes. After it, `spreads` say what it can find.

    `unchanged` are cases that need no time.
    """

    def __init__(self, request: Request, here: Modules) -> None:
        super().__init__(request, here)
        self.spreads: tuple[Spread, ...] = ()
        self.unchanged: Collection[str] = ()

    def time_pairs(
        self, before: tuple[Path | None, Mapping[str, Case]], shown: Quiet, *, end_at_regression: bool
    ) -> Sequence[RowVerdict]:
        """The verdicts on the cases against those of `before`, a tree and its cases by the same ids."""
        then, now = (
            {name: case for name, case in each.items() if name not in self.unchanged}
            for each in (before[1], self.cases)
        )
        sources = Source(before[0], task_rows(then)), Source(self.here.root, task_rows(now, self.slowed))
        rule, keys = self.request.rule(self.cases.values()), list(sources[1].rows)
        pair_s = partial(best_pair_s, budget_s=self.deadline.left_s, rule=rule)
        pairs = Pairs(
            *sources, self.suite.file.measure, progress=shown.row, pair_s=pair_s, left_s=lambda: self.deadline.latest_s
        )
        self.deadline.seconds = pairs.seconds
        evidence = PairEvidence(pairs)
        rows = judge(keys, evidence, rule, self.deadline.has_time, end_at_regression)
        look = affordable_look(rule, self.request.budget_s, pairs.seconds)
        self.spreads = spreads(keys, evidence, rule, look, self.slowed)
        self.notes += filter(None, [_needs(rows, evidence, rule, pairs.seconds)])
        return rows


def _needs(rows: Sequence[RowVerdict], evidence: PairEvidence, rule: GateRule, pair_s: Sequence[float]) -> str:
    """Return how much more time would decide the open rows; empty where none is open, or none can say."""
    open_ = [row.row for row in rows if row.verdict == "inconclusive" and row.replicates]
    more = [
        count - evidence.estimate(row).replicates
        for row in open_
        if (count := rule.replicates_needed(row, evidence.estimate(row)))
    ]
    if not more or not pair_s:
        return ""
    seconds = math.ceil(max(more) * pair_s[-1])
    which = "every inconclusive row" if len(more) == len(open_) else f"{len(more)} of {len(open_)} inconclusive rows"
    return f"{seconds} s more of --budget would decide {which}"


def task_rows(cases: Mapping[str, Case], inject: Mapping[RowKey, float] | None = None) -> dict[RowKey, PairRow]:
    """The latency rows of the cases, by their names, as a pair takes them; `inject` slows single rows by a share."""
    return {
        RowKey(name, mode): PairRow(case, mode, (inject or {}).get(RowKey(name, mode), 0.0))
        for name, case in cases.items()
        for mode in MODES
        if devices.has_clock(case.device)
    }


def conditions_phrase(environment: Mapping[str, Any], cases: Sequence[Case]) -> str:
    """On what, with what and under which conditions the rows were measured."""
    names = dict.fromkeys(case.device for case in cases)
    measured = [devices.device(name) for name in names if devices.has_clock(name)]
    parts = list(dict.fromkeys(part for device in measured for part in device.described(environment)))
    parts.append(f"torch {environment['packages']['torch']}")
    values = {name: {getattr(case, name) for case in cases} for name in CONDITIONS if name != "device"}
    here = any(device.has_threads for device in measured)
    values["threads"] = {environment["torch_threads"] if n is None else n for n in values["threads"]} if here else set()
    return ", ".join([*parts, *phrases(values)])
