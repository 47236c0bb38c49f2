"""`ctxbench memory`: what fills a module's memory."""

from collections.abc import Mapping
from typing import Any

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import OF_MODULE, check_drawing, complete_target
from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.memory import function


@command_of(
    function.predict_memory,
    hparams=OF_MODULE,
    target=typer.Option("--for", metavar="DEVICE", autocompletion=complete_target),
)
def memory(asked: Mapping[str, Any]) -> None:
    """Predict a module's peak memory without a GPU; print what is in memory at the peak and what would lower it."""
    plot = asked.get("plot")
    check_drawing(plot)
    for part in function.predict_memory(**asked).parts:
        render(part)
    if plot:
        say(f"drawn: {plot}")
