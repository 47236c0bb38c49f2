"""`ctxbench predict`: a module's time on a GPU that is not here."""

from dataclasses import replace
from typing import Annotated

import typer

from ctxbench.cli.options import Network, OneShape, Settings, case_of, complete_module, complete_target
from ctxbench.cli.printing import render_told
from ctxbench.engine.apart import Apart
from ctxbench.errors import unknown
from ctxbench.mode import MODES, Mode

DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64", "autocast-bfloat16", "autocast-float16")


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
    from ctxbench.devices.sheet import sheet
    from ctxbench.worker.protocol import TellTime

    for name, value, allowed in (("mode", mode, MODES), ("dtype", dtype, DTYPES)):
        if value not in allowed:
            raise unknown(name, value, allowed)
    which: Mode = mode  # type: ignore[assignment]  # checked above
    with Apart() as apart:
        case = replace(case_of(module, shape, chosen, network), dtype=dtype)
        apart.tell(TellTime(case, which, sheet(target)), case, render_told)
