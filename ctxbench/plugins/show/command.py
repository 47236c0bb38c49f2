"""`ctxbench show`: what is known of a module."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ctxbench.cli.options import OF_MODULE, Given, split
from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.macs.tools import counters
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
                help="With --shape: also what other counters print: all, or of "
                f"{','.join(counters())}. A version and a state may follow: fvcore@0.1.5+no-grad.",
            ),
        ],
        split,
    ),
)
def show(asked: Mapping[str, Any]) -> None:
    """Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs."""
    for part in function.show(**asked).parts:
        render(part)
