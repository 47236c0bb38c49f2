"""The contract of a context module: what one check says, and the inputs and limits of all checks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

CheckOutcome = Literal["passed", "failed", "not applicable", "not decided"]

CHANNELS = 64
# Odd, not square, and 99 positions: enough for the hams' default rank of 64.
SIZE = (11, 9)
# What is tried where a block refuses that: multiples of the usual windows and strides, then square maps.
OTHER_SIZES = ((16, 24), (14, 21), (32, 48), (28, 42), (8, 8), (7, 7), (14, 14), (16, 16), (28, 28), (32, 32), (56, 56))
# Processor time of one check. After so many required checks that took longer, no other is tried.
TIMEOUT_S, MOST_HANGS = 60.0, 2
# Behind the hint of a check without which no other runs.
NO_MORE = ". The later checks did not run."
# The checks feed inputs of a few hundred KiB; a module that needs more than this has a defect.
MEMORY_LIMIT_GIB = 8.0


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: a measured `fact` and, if the check failed or was stopped, a `hint` at the cause.

    A check that was stopped at a limit is not decided. One that is not `required` only informs: its failure does not
    break the contract. If a `decisive` one fails, numbers of the module would be wrong. `mark` is what a row of the
    module says in a few words: `local: 7 x 7`. `run_checks` fills in `name`, `required` and `decisive`.
    """

    name: str
    outcome: CheckOutcome
    fact: str
    hint: str = ""
    required: bool = True
    decisive: bool = False
    mark: str = ""

    @property
    def misleads(self) -> bool:
        """Return whether numbers of the module would be wrong."""
        return self.decisive and self.broken

    @property
    def broken(self) -> bool:
        """Return whether this result breaks the contract."""
        return self.required and self.outcome == "failed"


def option(typed: str, argument: str) -> str:
    """An option of the command beside the argument in Python: `--channels 8 (Python: channels=8)`."""
    return f"{typed} (Python: {argument})"


def judged(results: Iterable[CheckResult]) -> Literal["met", "broken", "not decided"]:
    """Verdict of the required checks on the contract: broken by one that failed, else not decided if one was not."""
    required = {result.outcome for result in results if result.required}
    return "broken" if "failed" in required else "not decided" if "not decided" in required else "met"
