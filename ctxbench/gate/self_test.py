"""`ctxbench check --self-test`: the modules at hand against themselves, to learn what this machine can see."""

import math
import statistics
from contextlib import ExitStack
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.stats import nct
from scipy.stats import t as student

from ctxbench.api import machine
from ctxbench.engine import conditions
from ctxbench.engine.client import Zygote
from ctxbench.errors import UsageError
from ctxbench.gate.check import conditions_phrase, labels, suite_in_tree, task_rows
from ctxbench.gate.finding import Finding
from ctxbench.gate.pairs import Pairs, Source
from ctxbench.gate.request import Deadline, InconclusiveIs, Request
from ctxbench.gate.rules import ExitCode, GateRule, RowVerdict, decide_gate, run_gate
from ctxbench.gate.survey import survey
from ctxbench.gate.trees import tree_here
from ctxbench.progress import QuietGate

# A change is found by the screening and by its confirmation, each with this probability: 95 % together.
POWER = 0.975


@dataclass(frozen=True)
class Spread:
    """What the pairs say of one row: the standard deviation of the log ratio, and the smallest change to be found.

    `visible` (relative) is found in 95 of 100 checks of the same budget; None if the budget holds no verdict at all, or
    the row has fewer than two pairs.
    """

    row: str
    injected: float
    deviation: float | None
    visible: float | None


@dataclass(frozen=True)
class SelfTest:
    """The finding, and what it tells about the machine. `false_alarms` counts untouched rows called regressed."""

    finding: Finding
    spreads: tuple[Spread, ...]
    false_alarms: int


def self_test(request: Request, inject: float = 0.0, progress: QuietGate | None = None) -> SelfTest:
    """Measure the rows of a suite against themselves, `inject` slowing every other row of one side by that share.

    Inside a git repository its modules are taken, else the installed ones. Raises UsageError if what is injected does
    not pass the margin, and so is no regression.
    """
    deadline = Deadline(request.budget_s)
    tree = tree_here()
    suite = suite_in_tree(request.suite, tree) if tree else request.suite
    root = tree.root if tree else None
    notes = conditions.warnings({"busy_cores": conditions.busy_cores()})
    with ExitStack() as stack:
        shown = stack.enter_context(progress or QuietGate())
        with Zygote(root) as zygote:
            environment = machine(zygote)
            found = survey(zygote, suite, "cuda" if environment["gpus"] else "cpu", tree, None)
        for name in suite.named & found.missing.keys():
            raise UsageError(found.missing[name])
        cases = list(found.cases.values())
        rule = request.rule(cases)
        slowed = _chosen(list(task_rows(cases)), inject, rule)
        pairs = Pairs(
            Source(root, task_rows(cases)), Source(root, task_rows(cases, slowed)), suite.file.measure, shown.row
        )
        deadline.last_s = lambda: pairs.seconds[-1] if pairs.seconds else 0.0
        rows = run_gate(list(pairs.candidate.rows), pairs, rule, deadline.has_time).rows
    spreads = tuple(
        _spread(row.row, slowed.get(row.row, 0.0), [pair.row for pair in pairs.history[row.row]], rule, look)
        for look in [_affordable_look(rule, request.budget_s, pairs.seconds)]
        for row in rows
    )
    names = labels(cases)
    name = tree.name if tree else "the installed modules"
    if slowed:
        notes.append(f"slowed by {inject:.3g} on purpose: {', '.join(names[row] for row in slowed)}")
    finding = Finding(
        baseline="itself",
        candidate=name,
        rows=rows,
        labels=names,
        exact=(),
        compared=0,
        margin=rule.margin,
        conditions=conditions_phrase(environment, cases),
        notes=tuple(notes),
        elapsed_s=deadline.elapsed_s,
        exit_code=exit_code(rows, slowed, request.inconclusive_is),
    )
    alarms = sum(row.verdict == "regressed" and row.row not in slowed for row in rows)
    return SelfTest(finding, spreads, alarms)


def exit_code(rows: tuple[RowVerdict, ...], slowed: dict[str, float], inconclusive_is: InconclusiveIs) -> ExitCode:
    """0 if what was slowed is regressed and the rest ok; 1 for a verdict that is wrong, 3 for one that is missing."""
    code = decide_gate(rows, inconclusive_is).exit_code
    if code in (ExitCode.BROKEN, ExitCode.NOTHING_COMPARED):
        return code
    expected = {row.row: "regressed" if row.row in slowed else "ok" for row in rows if row.status == "measured"}
    if any(row.verdict not in (expected[row.row], "inconclusive") for row in rows if row.row in expected):
        return ExitCode.REGRESSED
    # A slowdown that was injected and not found is a failure, whatever undecided rows count as.
    missed = any(row.verdict == "inconclusive" for row in rows if row.row in slowed or inconclusive_is == "fail")
    return ExitCode.INCONCLUSIVE if missed else ExitCode.OK


def smallest_visible(deviation: float, look: int, log_margin: float, look_alpha: float) -> float:
    """The relative change that a gate which gets to `look` pairs finds in 95 of 100 cases.

    The lower end of the t interval must pass the margin: `d - t(1 - alpha/2) s / sqrt(n) > m` with probability POWER,
    where s is estimated too, so that `(d - m) sqrt(n) / s` is noncentral t.
    """
    critical = float(student.ppf(1 - look_alpha / 2, look - 1))
    shift = brentq(lambda at: nct.sf(critical, look - 1, at) - POWER, 0.0, 3 * critical + 10)
    return math.expm1(log_margin + shift * deviation / math.sqrt(look))


def _chosen(rows: list[str], inject: float, rule: GateRule) -> dict[str, float]:
    """Half of the rows: infer of one case, train of the next."""
    if not inject:
        return {}
    chosen = {row: inject for index, row in enumerate(rows) if index % 4 in (0, 3)}
    for row in chosen:
        if math.log1p(inject) <= rule.log_margin(row):
            raise UsageError(f"an injected {inject:.3g} is within the margin of {row}: it would be no regression")
    return chosen


def _affordable_look(rule: GateRule, budget_s: float, seconds: list[float]) -> int | None:
    """The latest look that the budget holds twice (screening and confirmation) at the pace of the first pair."""
    affordable = [look for look in rule.looks if seconds and 2 * look * seconds[0] <= budget_s]
    return max(affordable, default=None)


def _spread(row: str, injected: float, ratios: list[float], rule: GateRule, look: int | None) -> Spread:
    deviation = statistics.stdev(ratios) if len(ratios) > 1 else None
    visible = None
    if deviation is not None and look is not None:
        visible = smallest_visible(deviation, look, rule.log_margin(row), rule.look_alpha(look))
    return Spread(row, injected, deviation, visible)
