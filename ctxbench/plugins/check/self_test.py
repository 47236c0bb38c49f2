"""`ctxbench check --self-test`: the modules at hand against themselves, to learn what this machine can see."""

import math
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, replace

from scipy.optimize import brentq
from scipy.stats import nct
from scipy.stats import t as student

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.progress import QuietGate
from ctxbench.engine.run import machine
from ctxbench.plugins.check.check import Check, labels, task_rows
from ctxbench.plugins.check.pairs import Pairs, Source
from ctxbench.plugins.check.request import Request
from ctxbench.plugins.check.result import GateResult
from ctxbench.plugins.check.rows import RowKey
from ctxbench.plugins.check.rules import GateRule, run_gate
from ctxbench.plugins.check.tree_cases import list_cases
from ctxbench.plugins.check.trees import modules_here

# A change is found by the screening and by its confirmation, each with this probability: 95 % together.
POWER = 0.975


@dataclass(frozen=True)
class Spread:
    """Spread of the pairs of one row: the standard deviation of the log ratio, and the smallest change to be found.

    `visible` (relative) is found in 95 of 100 checks of the same budget; None if the budget is too short for a verdict,
    or the row has fewer than two pairs.
    """

    row: RowKey
    injected: float
    deviation: float | None
    visible: float | None


@dataclass(frozen=True)
class SelfTest:
    """The result, and what it says about the machine."""

    result: GateResult
    spreads: tuple[Spread, ...]


def self_test(request: Request, inject: float = 0.0, progress: QuietGate | None = None) -> SelfTest:
    """Measure the rows of a suite against themselves, `inject` slowing every other row of one side by that share.

    Inside a git repository its modules are taken, else the installed ones. Raises UsageError if what is injected does
    not pass the margin, and so is no regression.
    """
    check = Check(request, modules_here())
    suite, root = check.suite, check.here.root
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        with ForkServer(root) as server:
            environment = machine(server)
            found = list_cases(server, suite, devices.auto(environment), check.here)
        for name in suite.named & found.missing.keys():
            raise UsageError(found.missing[name])
        cases = list(found.cases.values())
        rule = check.request.rule(cases)
        plain = task_rows(found.cases)
        slowed = _chosen(list(plain), inject, rule)
        pairs = Pairs(
            Source(root, plain), Source(root, task_rows(found.cases, slowed)), suite.file.measure, progress=shown.row
        )
        check.deadline.seconds = pairs.seconds
        rows = run_gate(list(plain), pairs, rule, check.deadline.has_time)
    look = _affordable_look(rule, request.budget_s, pairs.seconds)
    spreads = tuple(
        _spread(row, slowed.get(row, 0.0), [pair.row for pair in pairs.history[row]], rule, look) for row in plain
    )
    if slowed:
        names = labels(cases)
        chosen = ", ".join(str(replace(row, case=names[row.case])) for row in slowed)
        check.notes.append(f"slowed by {inject:.3g} on purpose: {chosen}")
    return SelfTest(check.result("itself", rows, environment, cases, slowed=slowed), spreads)


def smallest_visible(deviation: float, look: int, log_margin: float, look_alpha: float) -> float:
    """The relative change that a gate which gets to `look` pairs finds in 95 of 100 cases.

    The lower end of the t interval must pass the margin: `d - t(1 - alpha/2) s / sqrt(n) > m` with probability POWER,
    where s is estimated too, so that `(d - m) sqrt(n) / s` is noncentral t.
    """
    critical = float(student.ppf(1 - look_alpha / 2, look - 1))
    shift = brentq(lambda at: nct.sf(critical, look - 1, at) - POWER, 0.0, 3 * critical + 10)
    return math.expm1(log_margin + shift * deviation / math.sqrt(look))


def _chosen(rows: list[RowKey], inject: float, rule: GateRule) -> dict[RowKey, float]:
    """Half of the rows: infer of one case, train of the next."""
    if not inject:
        return {}
    chosen = {row: inject for index, row in enumerate(rows) if index % 4 in (0, 3)}
    for row in chosen:
        if math.log1p(inject) <= rule.log_margin(row):
            raise UsageError(f"an injected {inject:.3g} is within the margin of {row}: it would be no regression")
    return chosen


def _affordable_look(rule: GateRule, budget_s: float, seconds: list[float]) -> int | None:
    """The latest look that the budget allows twice (first pairs and confirmation run) at the pace of the first pair."""
    affordable = [look for look in rule.looks if seconds and 2 * look * seconds[0] <= budget_s]
    return max(affordable, default=None)


def _spread(row: RowKey, injected: float, ratios: list[float], rule: GateRule, look: int | None) -> Spread:
    deviation = statistics.stdev(ratios) if len(ratios) > 1 else None
    visible = None
    if deviation is not None and look is not None:
        visible = smallest_visible(deviation, look, rule.log_margin(row), rule.look_alpha(look))
    return Spread(row, injected, deviation, visible)
