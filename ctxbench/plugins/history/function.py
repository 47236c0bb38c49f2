"""`ctxbench.history`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.engine.progress import QuietGate
from ctxbench.plugins.history import table
from ctxbench.plugins.history.costs import History
from ctxbench.plugins.history.costs import history as costs
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def history(
    modules: "Sequence[Module] | Module",
    span: str = "HEAD",
    *,
    last: int = 20,
    runs: Sequence[str | Path] = (),
    suite: str = "ci",
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    progress: QuietGate | None = None,
    **conditions: Any,
) -> Result[History]:
    """Costs of modules at the last commits of a range such as `v1..main`, and the commits that changed one.

    `runs` are run folders, whose times stand at their commits; `conditions` are `shape`, `device`, ... as in
    `ctxbench.run`. Raises UsageError outside of a git repository, and for an unknown range or module.
    """
    found = costs(api.suite_of(suite, modules, hparams, conditions), span, last, [*map(Path, runs)], progress)
    return Result(found, (*table.history_tables(found), *table.sentences(found)))
