"""`ctxbench history`: how a module's cost moved over the commits of its repository."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import Settings, Texts, check_drawing, overrides_of, split, with_conditions
from ctxbench.cli.printing import gate_progress, render


@with_conditions()
def history(
    modules: Annotated[
        str, typer.Argument(metavar="MODULE[,MODULE]", help="path.py:Class of this repository, or keys.")
    ],
    conditions: Mapping[str, Texts],
    span: Annotated[
        str, typer.Argument(metavar="[RANGE]", help="Commits as git names them: v1..main, or the last one.")
    ] = "HEAD",
    last: Annotated[int, typer.Option(min=1, help="At most so many commits, the latest of the range.")] = 20,
    runs: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder, whose times stand at its commit; may be given several times."),
    ] = None,
    suite: Annotated[str, typer.Option(help="Inputs and settings: a suite's name, or the path of a TOML file.")] = "ci",
    chosen: Settings = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the costs over the commits into this .png or .svg.")] = None,
) -> None:
    """Print what modules cost at each commit of a repository, and where a cost changed.

    Each commit's own files are counted once: parameters, MACs, predicted memory and, with --device h100-sxm, predicted
    times. Merges are followed along their first parents.
    """
    import ctxbench
    from ctxbench.model import hparams as settings
    from ctxbench.plugins.history import table as history_table

    check_drawing(plot)
    found = ctxbench.history(
        split(modules) or [],
        span,
        last=last,
        runs=runs or [],
        suite=suite,
        hparams=settings.parse(chosen or []),
        progress=gate_progress(),
        **overrides_of(conditions).conditions,
    )
    for table in found.tables:
        render(table)
        say("")
    for line in found.lines:
        say(line)
    if plot is not None:
        history_table.plot(found.value, plot)
        say(f"drawn: {plot}")
