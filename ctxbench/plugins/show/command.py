"""`ctxbench show`: what is known of a module."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ctxbench.cli.options import OF_MODULE, Given, split
from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.macs.tools import NAMES
from ctxbench.plugins.show import function


@command_of(
    function.show,
    hparams=OF_MODULE,
    by_operator=typer.Option(help="With --shape: also the MACs of each operator."),
    counted_as=Given(
        Annotated[
            str | None,
            typer.Option(
                "--as",
                metavar="NAMES",
                help=f"With --shape: also what other counters print: all, or of {','.join(NAMES)}.",
            ),
        ],
        split,
    ),
)
def show(asked: Mapping[str, Any]) -> None:
    """Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs."""
    for part in function.show(**asked).parts:
        render(part)
