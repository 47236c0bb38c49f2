"""`ctxbench memory`: what fills a module's memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import Module, OneMode, Settings, case_of, check_drawing, with_conditions
from ctxbench.cli.printing import render
from ctxbench.engine.isolated import IsolatedLoader


@with_conditions("shape", "dtype", "memory_format", "network", one=True)
def memory(
    module: Module,
    conditions: Mapping[str, str],
    mode: OneMode = "train",
    target: Annotated[str, typer.Option("--for", metavar="DEVICE", help="cuda, cuda-2020 or cpu.")] = "cuda",
    chosen: Settings = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the memory in use over the pass into this .png or .svg.")
    ] = None,
) -> None:
    """Predict a module's peak memory without a GPU; print what is in memory at the peak and what would lower it."""
    from ctxbench.plugins.memory.function import memory_of

    check_drawing(plot)
    path = str(plot.absolute()) if plot else None
    with IsolatedLoader() as loader:
        found = memory_of(loader, case_of(module, conditions, chosen), mode, target, path)
    for part in found.parts:
        render(part)
    if plot:
        say(f"drawn: {plot}")
