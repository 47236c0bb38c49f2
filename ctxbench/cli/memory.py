"""`ctxbench memory`: what fills a module's memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.cli.options import Settings, case_of, complete_module, with_conditions
from ctxbench.cli.printing import render
from ctxbench.engine.apart import Apart
from ctxbench.errors import UsageError
from ctxbench.terminal import say


@with_conditions("shape", "dtype", "memory_format", "network", one=True)
def memory(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    conditions: Mapping[str, str],
    mode: Annotated[str, typer.Option(help="train or infer.")] = "train",
    target: Annotated[str, typer.Option("--for", metavar="DEVICE", help="cuda, cuda-2020 or cpu.")] = "cuda",
    chosen: Settings = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the memory in use over the pass into this .png or .svg.")
    ] = None,
) -> None:
    """Predict a module's peak memory without a GPU; print what is in memory at the peak and what would lower it."""
    from ctxbench import disk, predictions

    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg"):
            raise UsageError(f"--plot {plot}: the name of a drawing ends in .png or .svg")
        disk.check_place(plot)
    path = str(plot.absolute()) if plot else None
    with Apart() as apart:
        found = predictions.memory_of(apart, case_of(module, conditions, chosen), mode, target, path)
    for part in found.parts:
        render(part)
    if plot:
        say(f"drawn: {plot}")
