"""`ctxbench history`: how a module's cost moved over the commits of its repository."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import Given, check_drawing, split
from ctxbench.cli.printing import render, reporter
from ctxbench.cli.signature import command_of
from ctxbench.plugins.history import function
from ctxbench.plugins.trees.options import Adapters

ModulesArgument = Annotated[
    str, typer.Argument(metavar="MODULE[,MODULE]", help="path.py:Class of this repository, or keys.")
]
Runs = Annotated[
    list[Path] | None, typer.Option(help="A run folder, whose times stand at its commit; may be given several times.")
]


@command_of(
    function.history,
    modules=Given(ModulesArgument, split),
    span=typer.Argument(metavar="[RANGE]"),
    last=typer.Option(min=1),
    runs=Runs,
    adapters=Adapters,
    suite=typer.Option(),
)
def history(
    asked: Mapping[str, Any],
    plot: Annotated[Path | None, typer.Option(help="Draw the costs over the commits into this .png or .svg.")] = None,
) -> None:
    """Print what modules cost at each commit of a repository, and where a cost changed.

    Each commit's own files are counted once: parameters, MACs, predicted memory and, with --device h100-sxm, predicted
    times. Merges are followed along their first parents.
    """
    from ctxbench.plugins.history import table as history_table

    check_drawing(plot)
    found = function.history(**asked, progress=reporter())
    for table in found.tables:
        render(table)
        say("")
    for line in found.lines:
        say(line)
    if plot is not None:
        history_table.plot(found.value, plot)
        say(f"drawn: {plot}")
