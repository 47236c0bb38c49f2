"""Claims of the suite `portable`: which blocks each target takes."""

from functools import partial

from ctxbench.plugin import plugins
from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, tally

# Not imported: whoever deletes the plugin deletes the suite, and nobody asks for its claims.
PORTABLE = plugins()["portable"]
found_of, TARGETS = PORTABLE.load("found:found_of"), PORTABLE.load("targets:TARGETS")
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
