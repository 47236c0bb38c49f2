"""`ctxbench.check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base.errors import UsageError
from ctxbench.engine.progress import QuietGate
from ctxbench.plugins.check.check_against import check_against
from ctxbench.plugins.check.check_stored import check_stored
from ctxbench.plugins.check.request import Request, parse_accepted, parse_outputs
from ctxbench.plugins.check.result import GateResult
from ctxbench.plugins.check.tables import exact_table, row_table
from ctxbench.plugins.check.texts import remarks, title_of
from ctxbench.plugins.check.texts import summary as summary_of
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def check(
    against: str | None = None,
    modules: "Sequence[Module] | Module | None" = None,
    *,
    baseline: str | Path | None = None,
    suite: str = "ci",
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    accept: Sequence[str] = (),
    outputs: str = "must-match",
    margin: float | None = None,
    budget_s: float = 600.0,
    progress: QuietGate | None = None,
    **conditions: Any,
) -> Result[GateResult]:
    """Check whether a change made modules slower, larger or broken, or altered their outputs.

    The working tree is held against a commit, branch or tag (`against`), or a stored run (`baseline`). `accept` names
    metrics whose growth is no regression; `outputs` is `must-match` or `may-change`; `margin` is the smallest relative
    change that matters (None: the suite's); `conditions` are `shape`, `dtype`, ... as in `ctxbench.run`. The exit code
    of the command is `value.exit_code`. Raises UsageError for a wrong argument.
    """
    request = Request(
        api.suite_of(suite, modules, hparams, conditions),
        margin,
        budget_s,
        accepted=parse_accepted(accept),
        must_match=parse_outputs(outputs),
    )
    if (against is None) == (baseline is None):
        raise UsageError("check takes one of against and baseline")
    result = (
        check_stored(Path(baseline), request, progress) if baseline else check_against(str(against), request, progress)
    )
    tables = (row_table(result, result.rows, reasons=True), exact_table(result))
    return Result(result, (*tables, title_of(result), *remarks(result), summary_of(result)))
