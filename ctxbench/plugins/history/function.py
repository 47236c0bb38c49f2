"""`ctxbench.history`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxbench import api
from ctxbench.cli.options import HyperParameters, condition_options, split
from ctxbench.cli.signature import Given
from ctxbench.engine.progress import QuietGate
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module
    from ctxbench.plugins.history.costs import History

Modules = Annotated[str, typer.Argument(metavar="MODULE[,MODULE]", help="path.py:Class of this repository, or keys.")]
Runs = Annotated[
    list[Path] | None, typer.Option(help="A run folder, whose times stand at its commit; may be given several times.")
]


def history(
    modules: Annotated["Sequence[Module] | Module", Given(Modules, split)],
    span: Annotated[
        str, typer.Argument(metavar="[RANGE]", help="Commits as git names them: v1..main, or the last one.")
    ] = "HEAD",
    *,
    last: Annotated[int, typer.Option(min=1, help="At most so many commits, the latest of the range.")] = 20,
    runs: Annotated[Sequence[str | Path], Given(Runs)] = (),
    suite: Annotated[str, typer.Option(help="Inputs and settings: a suite's name, or the path of a TOML file.")] = "ci",
    hparams: HyperParameters = None,
    progress: QuietGate | None = None,
    **conditions: Annotated[Any, condition_options()],
) -> "Result[History]":
    """Costs of modules at the last commits of a range such as `v1..main`, and the commits that changed one.

    `runs` are run folders, whose times stand at their commits; `conditions` are `shape`, `device`, ... as in
    `ctxbench.run`. Raises UsageError outside of a git repository, and for an unknown range or module.
    """
    from ctxbench.plugins.history import costs, table  # pandas and matplotlib, which help needs not

    found = costs.history(api.suite_of(suite, modules, hparams, conditions), span, last, [*map(Path, runs)], progress)
    return Result(found, (*table.history_tables(found), *table.sentences(found)))
