"""Size of the slowdowns that a check finds, from the spread of what it measured."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxbench.plugins.check.evidence import PairEvidence
from ctxbench.plugins.check.rows import RowKey
from ctxbench.plugins.check.rules import GateRule

# What share of checks finds a change that is called visible.
POWER = 0.95


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


def spreads(
    rows: Sequence[RowKey], evidence: PairEvidence, rule: GateRule, look: int | None, injected: Mapping[RowKey, float]
) -> tuple[Spread, ...]:
    """The spread of each row; `look` is the last one that the budget has room for."""
    found = []
    for row in rows:
        ratios = evidence.ratios(row)[1]
        deviation = statistics.stdev(ratios) if len(ratios) > 1 else None
        visible = None
        if deviation is not None and look is not None:
            lines = rule.log_tolerance(row), rule.log_margin(row)
            visible = smallest_visible(deviation, look, *lines, rule.look_alpha(look) / len(rows))
        found.append(Spread(row, injected.get(row, 0.0), deviation, visible))
    return tuple(found)


def affordable_look(rule: GateRule, budget_s: float, pair_s: Sequence[float]) -> int | None:
    """The latest look that the budget allows at the pace of the first pair."""
    return max((look for look in rule.looks if pair_s and look * pair_s[0] <= budget_s), default=None)


def smallest_visible(deviation: float, look: int, log_tolerance: float, log_margin: float, look_alpha: float) -> float:
    """The relative change that a gate which gets to `look` pairs finds in 95 of 100 cases.

    The lower end of the t interval must pass the tolerance: `d - t(1 - alpha/2) s / sqrt(n) > tolerance` with
    probability POWER, where s is estimated too, so that `(d - tolerance) sqrt(n) / s` is noncentral t. What is smaller
    than the margin may be called ok.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct
    from scipy.stats import t as student

    critical = float(student.ppf(1 - look_alpha / 2, look - 1))
    shift = brentq(lambda at: nct.sf(critical, look - 1, at) - POWER, 0.0, 3 * critical + 10)
    return math.expm1(max(log_tolerance + shift * deviation / math.sqrt(look), log_margin))


def sentence(found: Sequence[Spread]) -> str:
    """Return a sentence on what the check finds on this machine; empty where no row says."""
    visible = [each.visible for each in found if each.visible is not None]
    if not visible:
        return ""
    middle, largest = (f"{100 * share:.0f} %" for share in (statistics.median(visible), max(visible)))
    rest = f" (in its noisiest row, of {largest})" if largest != middle else ""
    return f"this budget finds slowdowns of {middle} and more in 95 of 100 checks on this machine{rest}"
