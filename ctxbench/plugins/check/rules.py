"""The gate's one rule: evidence on rows goes in, look by look, and a verdict for each row comes out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ctxbench.base.number import Number
from ctxbench.base.statistics import holm, t_quantile
from ctxbench.plugins.check.evidence import BudgetSpent, Evidence
from ctxbench.plugins.check.rows import Estimate, RowKey, RowVerdict

BELOW = "The whole confidence interval lies below the margin."
WITHIN = "Slower, but the whole confidence interval lies below the margin."
ABOVE = "Slower for certain, and possibly by more than the margin."
CONTAINED = "The confidence interval contains both the tolerance and the margin."
CORRECTED = (
    "The confidence interval lies above the tolerance, but by too little for one of several rows (Holm's correction)."
)
NO_TIME = "The time budget was spent before a decision."
ENDED = "The check ended at the regression of another row."
# The interval of a row without a verdict says nothing if its ends are more than so many times apart.
WIDEST = 10.0


@dataclass(frozen=True)
class GateRule:
    """Decision rule for a row: regressed, ok, or neither.

    `margin` is the relative change that matters, `margins` overrides it for single rows. Changes up to `tolerance` come
    with luck and address layout, of equal code, too; it is never more than the margin. `alpha` is the two-sided error
    of a row's interval over all `looks`, which are counts of replicates: each spends in proportion to its count, so
    that an early one ends only a clear case and costs the last little power.
    """

    margin: float = 0.05
    tolerance: float = 0.015
    alpha: float = 0.05
    looks: tuple[int, ...] = (4, 6, 9, 13, 19, 28)
    margins: Mapping[RowKey, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min([self.margin, *self.margins.values()]) <= 0 or self.tolerance < 0 or not 0 < self.alpha < 1:
            raise ValueError("A gate needs positive margins, a tolerance and an alpha between 0 and 1.")
        if not self.looks or self.looks[0] < 1 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError("The looks of a gate are rising counts of replicates, the first 1 or more.")

    def look_alpha(self, look: int) -> float:
        """The two-sided error that the look at so many replicates may spend."""
        return self.alpha * look / sum(self.looks)

    def log_margin(self, row: RowKey) -> float:
        """The margin of a row on the scale of its log ratios."""
        return math.log1p(self.margins.get(row, self.margin))

    def log_tolerance(self, row: RowKey) -> float:
        """The tolerance of a row on the same scale."""
        return min(math.log1p(self.tolerance), self.log_margin(row))

    def replicates_needed(self, row: RowKey, estimate: Estimate) -> int | None:
        """The count of replicates at which an interval of this spread decides wherever it lies; None if not known.

        It is then narrower than the distance from the tolerance to the margin.
        """
        distance = (self.log_margin(row) - self.log_tolerance(row)) / 2
        if not math.isfinite(estimate.error) or distance <= 0:
            return None
        spread = estimate.error * math.sqrt(estimate.replicates)
        for look in self.looks:
            reach = t_quantile(1 - self.look_alpha(look), look) * spread / math.sqrt(look)
            if look > estimate.replicates and reach <= distance:
                return look
        return None


def judge(
    rows: Sequence[RowKey],
    evidence: Evidence,
    rule: GateRule,
    has_time: Callable[[], bool],
    end_at_regression: bool = False,
) -> tuple[RowVerdict, ...]:
    """Collect evidence until every row has a verdict or the time is up; or, if asked for, until one is regressed.

    One sequential test: every replicate counts at each later look, and a row leaves as soon as it is decided. It is ok
    if its whole interval lies below the margin, and regressed if it is not and lies above the tolerance, by Holm's test
    over the rows that are open at that look. `has_time` is asked before each replicate; without time, what is open is
    inconclusive.
    """
    if len(set(rows)) != len(rows):
        raise ValueError("A gate was given the same row twice.")
    gate = _Gate(rows, evidence, rule)
    taken = 0
    for look in rule.looks:
        while taken < look and gate.open:
            try:
                if not has_time():
                    raise BudgetSpent
                gate.settled |= evidence.measure(gate.open)
            except BudgetSpent:
                gate.leave(NO_TIME)
                break
            taken += 1
        gate.look(look)
        if end_at_regression and any(each.verdict == "regressed" for each in gate.settled.values()):
            gate.leave(ENDED)
    gate.leave()
    return tuple(gate.settled[row] for row in rows)


class _Gate:
    """The verdicts on the rows that are settled, and what was seen of the open ones at their last look."""

    def __init__(self, rows: Sequence[RowKey], evidence: Evidence, rule: GateRule) -> None:
        self.rows, self.evidence, self.rule = rows, evidence, rule
        self.settled: dict[RowKey, RowVerdict] = {}
        self.seen: dict[RowKey, tuple[Estimate, Number]] = {}

    @property
    def open(self) -> list[RowKey]:
        return [row for row in self.rows if row not in self.settled]

    def look(self, look: int) -> None:
        """Settle the open rows that are decided."""
        alpha = self.rule.look_alpha(look)
        for row in self.open:
            estimate = self.evidence.estimate(row)
            self.seen[row] = estimate, estimate.interval(alpha)
        sound = [row for row in self.open if not self.seen[row][0].doubt]
        tests = holm([self.seen[row][0].p_above(self.rule.log_tolerance(row)) for row in sound])
        for row, p_value in zip(sound, tests, strict=True):
            estimate, change = self.seen[row]
            low, high = change.ends
            if high < self.rule.log_margin(row):
                reason = WITHIN if low > self.rule.log_tolerance(row) else BELOW
                self.settled[row] = estimate.verdict(row, "measured", "ok", reason, change)
            elif p_value <= alpha / 2:
                self.settled[row] = estimate.verdict(row, "measured", "regressed", ABOVE, change)

    def leave(self, why: str = "") -> None:
        """Settle the open rows: why they go no further, and what left them open at their last look.

        The change is that of the last look. Its interval is told only if it is the reason: if it contains both lines.
        """
        for row in self.open:
            now = self.evidence.estimate(row)
            estimate, change = self.seen.get(row, (now, None))
            shown, reasons = None, [why]
            if change:
                low, high = change.ends
                doubt = estimate.doubt or (CORRECTED if low > self.rule.log_tolerance(row) else CONTAINED)
                first = f"The first {estimate.replicates} of these pairs left it open: "
                reasons.append(first * (now.replicates > estimate.replicates) + doubt)
                shown = change if doubt == CONTAINED and high - low <= math.log(WIDEST) else None
            counted = replace(estimate, replicates=now.replicates)
            reason = " ".join(filter(None, reasons))
            self.settled[row] = counted.verdict(row, "measured", "inconclusive", reason, shown)
