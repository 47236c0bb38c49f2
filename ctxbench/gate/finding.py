"""What a gate found, whole: what the table, the files for CI and the exit code are made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ctxbench.gate.rules import ExitCode, RowVerdict


@dataclass(frozen=True)
class ExactChange:
    """A quantity of a case that differs between the sides and is compared without statistics.

    `quantity` is a column of a record: `params`, `macs`, `memory_infer_predicted_bytes`, ... A None is a value that
    could not be had.
    """

    case: str
    quantity: str
    baseline: int | None
    candidate: int | None

    @property
    def worse(self) -> bool:
        """Whether the candidate costs more, or its cost is no longer known."""
        if self.baseline is None:
            return False
        return self.candidate is None or self.candidate > self.baseline


@dataclass(frozen=True)
class Finding:
    """Baseline against candidate.

    `baseline` and `candidate` name the sides for a person ("main (1a2b3c4d5e)", "the working tree"). `rows` are the
    latency rows, one a case and mode; `labels` gives each a short name. `exact` holds the exact quantities that differ,
    `compared` counts all that were compared. `notes` are sentences that a reader needs beside the verdicts. An
    `advisory` finding's latencies decide nothing: its exit code says what else there is. `evidence` is what a row's
    `pairs` counts: pairs of processes, or single ones against a stored run.
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
    evidence: Literal["pair", "process"] = "pair"
    advisory: bool = False

    @property
    def title(self) -> str:
        return f"{self.candidate} against {self.baseline}"
