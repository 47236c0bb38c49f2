"""Claims of the suite `portable`: which blocks each target takes."""

from functools import partial

from ctxbench.plugins.portable.found import found_of
from ctxbench.plugins.portable.targets import TARGETS
from ctxbench.results.claims import Claim, Finding, Missing, Outcome, Rows, tally

WHOLE = "converted whole, and its output within 0.001 of PyTorch's, relatively"


def whole(rows: Rows, target: str) -> Finding:
    """Number of blocks that a target takes whole, and the status of the others."""

    def takes(module: str) -> Outcome:
        found = found_of(rows.row("portable_found", module=module)).get(target)
        if found is None or found.status == "absent":
            raise Missing(found.reason if found else "not asked for")
        return found.status == "whole", "" if found.status == "whole" else f"({found.short})"

    return tally(rows.modules(), takes)


CLAIMS = tuple(
    Claim(
        f"{target.title} takes every block whole",
        "converted whole; it is not run here" if name == "coreml" else WHOLE,
        partial(whole, target=name),
    )
    for name, target in TARGETS.items()
    if not target.rule
)
