"""`ctxbench predict`: a module's time on a GPU that is not here."""

from typing import Annotated

import typer

from ctxbench.cli.options import (
    Settings,
    complete_module,
    complete_target,
)
from ctxbench.cli.printing import render


def predict(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    target: Annotated[
        str,
        typer.Option(
            "--for", metavar="DEVICE", help="Such as a100-40gb, or a TOML file.", autocompletion=complete_target
        ),
    ],
    shape: Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")] = "1,512,128,128",
    mode: Annotated[str, typer.Option(help="train or infer.")] = "infer",
    dtype: Annotated[str, typer.Option(help="float32, tf32, bfloat16, float16 or float64.")] = "float32",
    chosen: Settings = None,
) -> None:
    """Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured."""
    from ctxbench import registry
    from ctxbench.case import parse_shape
    from ctxbench.cli import describe_time
    from ctxbench.devices.sheet import sheet
    from ctxbench.suite import settings

    entry = registry.get(module)
    names = module, entry.key, settings.class_name(entry.reference)
    hparams = entry.check_hparams(settings.of_one_module(chosen or [], *names))
    for part in describe_time.passes(entry, parse_shape(shape), hparams, mode, sheet(target), dtype):
        render(part)
