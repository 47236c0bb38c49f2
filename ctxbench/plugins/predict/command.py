"""`ctxbench predict`: a module's time on a GPU that is not here."""

from collections.abc import Mapping
from typing import Annotated

import typer

from ctxbench.cli.options import Module, OneMode, Settings, case_of, complete_target, with_conditions
from ctxbench.cli.printing import render
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.plugins.predict import LOSSES, OPTIMIZERS


@with_conditions("shape", "dtype", "memory_format", "network", one=True)
def predict(
    module: Module,
    target: Annotated[
        str,
        typer.Option(
            "--for", metavar="DEVICE", help="Such as a100-40gb, or a TOML file.", autocompletion=complete_target
        ),
    ],
    conditions: Mapping[str, str],
    mode: OneMode = "infer",
    loss: Annotated[str, typer.Option(help=f"Of a training step: {', '.join(LOSSES)} of the output.")] = LOSSES[0],
    optimizer: Annotated[str, typer.Option(help=f"Add its step: {', '.join(OPTIMIZERS)}.")] = "",
    chosen: Settings = None,
) -> None:
    """Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured."""
    from ctxbench.plugins.predict.function import time_of

    with IsolatedLoader() as loader:
        found = time_of(loader, case_of(module, conditions, chosen), mode, target, loss, optimizer)
    for part in found.parts:
        render(part)
