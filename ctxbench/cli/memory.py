"""`ctxbench memory`: what fills a module's memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.cli.options import Settings, case_of, complete_module, with_conditions
from ctxbench.cli.printing import render_told
from ctxbench.engine.apart import Apart
from ctxbench.errors import UsageError, unknown
from ctxbench.mode import MODES, Mode
from ctxbench.terminal import say

TARGETS = ("cuda", "cuda-2020", "cpu")


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
    from ctxbench import disk
    from ctxbench.worker.protocol import TellMemory

    for name, value, allowed in (("mode", mode, MODES), ("device", target, TARGETS)):
        if value not in allowed:
            raise unknown(name, value, allowed)
    which: Mode = mode  # type: ignore[assignment]  # checked above
    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg"):
            raise UsageError(f"--plot {plot}: the name of a drawing ends in .png or .svg")
        disk.check_place(plot)
    path = str(plot.absolute()) if plot else None
    with Apart() as apart:
        case = case_of(module, conditions, chosen)
        apart.tell(TellMemory(case, which, target, path), case, render_told)
    if plot:
        say(f"drawn: {plot}")
