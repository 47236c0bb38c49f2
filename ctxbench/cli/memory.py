"""`ctxbench memory`: what fills a module's memory."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.cli.options import (
    Settings,
    complete_module,
)
from ctxbench.cli.printing import render


def memory(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    shape: Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")] = "1,512,128,128",
    mode: Annotated[str, typer.Option(help="train or infer.")] = "train",
    target: Annotated[str, typer.Option("--for", metavar="DEVICE", help="cuda, cuda-2020 or cpu.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    chosen: Settings = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the memory in use over the pass into this .png or .svg.")
    ] = None,
) -> None:
    """Predict a module's peak memory without a GPU; print what is in memory at the peak and what would lower it."""
    from ctxbench import registry
    from ctxbench.case import parse_shape
    from ctxbench.cli import describe
    from ctxbench.suite import settings

    entry = registry.get(module)
    names = module, entry.key, settings.class_name(entry.reference)
    hparams = entry.check_hparams(settings.of_one_module(chosen or [], *names))
    for part in describe.memory(entry, parse_shape(shape), hparams, mode, target, dtype, plot):
        render(part)
