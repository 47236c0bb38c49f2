"""`ctxbench predict`: a module's time on a GPU that is not here."""

from typing import Annotated

import typer

from ctxbench.cli.options import Network, OneShape, Settings, case_of, complete_module, complete_target
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
    shape: OneShape = None,
    mode: Annotated[str, typer.Option(help="train or infer.")] = "infer",
    dtype: Annotated[
        str, typer.Option(help="float32, tf32, bfloat16, float16, float64 or autocast-float16.")
    ] = "float32",
    network: Network = None,
    chosen: Settings = None,
) -> None:
    """Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured."""
    from ctxbench.cli import describe_time
    from ctxbench.devices.sheet import sheet

    for part in describe_time.passes(case_of(module, shape, chosen, network), mode, sheet(target), dtype):
        render(part)
