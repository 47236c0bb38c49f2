"""The result of a check, whole: what the table, the files for CI and the exit code are made from."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from ctxbench.base.mode import MODES
from ctxbench.model.metrics import metrics
from ctxbench.plugins.check.rows import ADDED, PREDICTED, RowKey, RowVerdict

# The columns that are compared without statistics, by the metric that fills them.
EXACT_COLUMNS: Mapping[str, tuple[str, ...]] = {
    name: columns
    for name, metric in metrics().items()
    if (columns := tuple(quantity.column for quantity in metric.quantities if quantity.exact))
}
# All that may grow with --accept: of a device that is known by its data sheet, the kernels that a pass starts, too.
LAUNCHES = "launches"
ACCEPTABLE = {**EXACT_COLUMNS, LAUNCHES: tuple(f"{LAUNCHES}_{mode}" for mode in MODES)}
EvidenceKind = Literal["pair", "process"]
InconclusiveIs = Literal["ok", "fail", "skip"]


class ExitCode(IntEnum):
    """Exit code of a check; 2 is left to usage errors."""

    OK = 0
    REGRESSED = 1
    INCONCLUSIVE = 3
    BROKEN = 4
    NOTHING_COMPARED = 5
    CHANGED = 6
    CANNOT_TELL = 125  # with which `git bisect run` leaves a commit out


@dataclass(frozen=True)
class ExactChange:
    """A quantity of a case that differs between the sides and is compared without statistics.

    `quantity` is one of ACCEPTABLE. None is a value that is not available. Relative growth up to `limit` fails
    nothing (None: no growth is accepted).
    """

    case: str
    quantity: str
    baseline: int | None
    candidate: int | None
    limit: float | None = None

    @property
    def difference(self) -> int | None:
        return None if self.baseline is None or self.candidate is None else self.candidate - self.baseline

    @property
    def growth(self) -> float:
        """The relative growth; infinite from 0, NaN where a value is not known."""
        if self.difference is None or self.baseline is None:
            return math.nan
        return self.difference / self.baseline if self.baseline else math.inf

    @property
    def accepted(self) -> bool:
        """Return whether it grew, and by no more than is accepted. A cost that is no longer available is no growth."""
        return self.worse and self.limit is not None and self.growth <= self.limit

    @property
    def worse(self) -> bool:
        """Return whether the candidate costs more, or its cost is no longer available."""
        if self.baseline is None:
            return False
        return self.candidate is None or self.candidate > self.baseline

    @property
    def fails(self) -> bool:
        return self.worse and not self.accepted

    @property
    def metric(self) -> str:
        """Name of the quantity for `--accept`."""
        return next(name for name, columns in ACCEPTABLE.items() if self.quantity in columns)


@dataclass(frozen=True)
class OutputVerdict:
    """Verdict on a case's outputs from the same weights and input.

    `change` is the largest relative difference of a part; None if none can be told. `reason` says which parts changed,
    why nothing was compared, or what is to be known beside outputs that are the same.
    """

    case: str
    verdict: Literal["same", "changed", "not compared"]
    reason: str = ""
    change: float | None = None


@dataclass(frozen=True)
class GateResult:
    """Baseline against candidate.

    `baseline` and `candidate` name the sides for a person ("main (1a2b3c4d5e)", "the working tree"). `rows` are the
    latency rows; `labels` gives each case a short name. `exact` has the exact quantities that differ, `compared`
    counts all that were compared. `outputs` has a verdict for each case, which decides if they `must_match`. `notes`
    are sentences that a reader needs beside the verdicts. In an `advisory`
    result the latencies have no part in the exit code. `evidence` is what a row's `replicates` are: pairs of
    processes, or the processes of now against a stored run. `elapsed_s` is the whole time, `spent` that of each stage.
    """

    baseline: str
    candidate: str
    rows: tuple[RowVerdict, ...]
    labels: Mapping[str, str]
    exact: tuple[ExactChange, ...]
    compared: int
    margin: float
    conditions: str
    notes: tuple[str, ...]
    elapsed_s: float
    exit_code: ExitCode
    evidence: EvidenceKind = "pair"
    advisory: bool = False
    outputs: tuple[OutputVerdict, ...] = ()
    must_match: bool = True
    budget_s: float = math.inf
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.candidate} against {self.baseline}"


def exit_code(
    rows: Sequence[RowVerdict],
    exact: Sequence[ExactChange] = (),
    compared: int = 0,
    *,
    inconclusive_is: InconclusiveIs = "ok",
    timed: bool = True,
    advisory: bool = False,
    slowed: Collection[RowKey] = (),
    outputs: Sequence[OutputVerdict] = (),
    is_whole: bool = True,
) -> ExitCode:
    """The exit code of latency rows and exact quantities together.

    Without latency (not `timed`, or no row but predicted ones) the quantities that were `compared` are enough. In an
    `advisory` result the rows of a mode decide nothing. Where rows were `slowed` on purpose, a wrong verdict counts as
    a regression and a slowdown that is not found as inconclusive, whatever `inconclusive_is`. `outputs` are those that
    must match. Where it is not whole, the budget did not reach a quantity that decides without a clock.
    """
    if any(row.status == "broken" for row in rows):
        return ExitCode.BROKEN
    if any(change.fails for change in exact):
        return ExitCode.REGRESSED
    judged = [row for row in rows if row.verdict]
    deciding = [row for row in judged if not (advisory and row.row.mode)]
    undecided = [row for row in deciding if row.verdict == "inconclusive"]
    if any(row.verdict != ("regressed" if row.row in slowed else "ok") for row in deciding if row not in undecided):
        return ExitCode.REGRESSED
    if any(each.verdict == "changed" for each in outputs):
        return ExitCode.CHANGED
    decided = any(row.replicates or row.verdict == "ok" for row in judged) or any(row.status in ADDED for row in rows)
    to_time = timed and any(row.status != PREDICTED for row in rows)
    if not decided and not (compared and not to_time):
        return ExitCode.CANNOT_TELL if inconclusive_is == "skip" else ExitCode.NOTHING_COMPARED
    unknown = not is_whole or any(each.verdict == "not compared" for each in outputs)
    if (unknown and inconclusive_is != "ok") or any(inconclusive_is != "ok" or row.row in slowed for row in undecided):
        return ExitCode.CANNOT_TELL if inconclusive_is == "skip" else ExitCode.INCONCLUSIVE
    return ExitCode.OK
