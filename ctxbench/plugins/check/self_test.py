"""`ctxbench check --self-test`: the modules at hand against themselves, to learn what this machine can see."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import Quiet
from ctxbench.engine.run import machine
from ctxbench.plugins.check.check import PairCheck, task_rows
from ctxbench.plugins.check.power import Spread
from ctxbench.plugins.check.request import LISTING, Request
from ctxbench.plugins.check.result import GateResult
from ctxbench.plugins.check.rows import RowKey, RowVerdict
from ctxbench.plugins.check.rules import GateRule
from ctxbench.plugins.trees.tree_cases import labels, list_cases
from ctxbench.plugins.trees.trees import Modules, modules_here


@dataclass(frozen=True)
class SelfTest:
    """The result, and what it says about the machine."""

    result: GateResult
    spreads: tuple[Spread, ...]


def self_test(request: Request, inject: float = 0.0, progress: Quiet | None = None) -> SelfTest:
    """Measure the rows of a suite against themselves, `inject` slowing every other row of one side by that share.

    Inside a git repository its modules are taken, else the installed ones. Raises UsageError if what is injected does
    not pass the margin, and so is no regression.
    """
    check = _SelfCheck(request, modules_here(), inject)
    result = check.run(progress)
    return SelfTest(result, check.spreads)


class _SelfCheck(PairCheck):
    """A check of what is here against itself."""

    baseline = "itself"

    def __init__(self, request: Request, here: Modules, inject: float) -> None:
        super().__init__(request, here)
        self.inject = inject

    def prepare(self, stack: ExitStack, shown: Quiet) -> None:
        with ForkServer(self.here.root) as server:
            self.environment = machine(server)
            found = list_cases(server, self.suite, devices.auto(self.environment), self.here)
        self.deadline.ended(LISTING)
        for name in self.suite.named & found.missing.keys():
            raise UsageError(found.missing[name])
        self.cases = found.cases
        self.named = list(found.cases.values())
        self.slowed = _chosen(list(task_rows(found.cases)), self.inject, self.request.rule(self.named))
        if self.slowed:
            names = labels(self.named)
            chosen = ", ".join(str(replace(row, case=names[row.case])) for row in self.slowed)
            self.notes.append(f"slowed by {self.inject:.3g} on purpose: {chosen}")

    def time(self, shown: Quiet) -> Sequence[RowVerdict]:
        return self.time_pairs((self.here.root, self.cases), shown, end_at_regression=False)


def _chosen(rows: list[RowKey], inject: float, rule: GateRule) -> dict[RowKey, float]:
    """Half of the rows: infer of one case, train of the next."""
    if not inject:
        return {}
    chosen = {row: inject for index, row in enumerate(rows) if index % 4 in (0, 3)}
    for row in chosen:
        if math.log1p(inject) <= rule.log_margin(row):
            raise UsageError(f"an injected {inject:.3g} is within the margin of {row}: it would be no regression")
    return chosen
