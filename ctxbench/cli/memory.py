"""`ctxbench memory`: what fills a module's memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.cli.options import Module, OneMode, Settings, case_of, check_drawing, mode_of, with_conditions
from ctxbench.cli.printing import render_told
from ctxbench.engine.apart import Apart
from ctxbench.errors import unknown
from ctxbench.terminal import say

TARGETS = ("cuda", "cuda-2020", "cpu")


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
    from ctxbench.worker.protocol import TellMemory

    which = mode_of(mode)
    if target not in TARGETS:
        raise unknown("device", target, TARGETS)
    check_drawing(plot)
    path = str(plot.absolute()) if plot else None
    with Apart() as apart:
        case = case_of(module, conditions, chosen)
        apart.tell(TellMemory(case, which, target, path), case, render_told)
    if plot:
        say(f"drawn: {plot}")
