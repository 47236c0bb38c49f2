"""`ctxbench verify`: does a module meet the contract?"""

from typing import Annotated

import typer

from ctxbench.cli.options import (
    EXIT_FAILED_CASES,
    Settings,
    complete_module,
)
from ctxbench.cli.printing import render


def verify(
    module: Annotated[
        str,
        typer.Argument(
            help="path.py:Class, package.module:Class or a key. Its code is run.", autocompletion=complete_module
        ),
    ],
    chosen: Settings = None,
    channels: Annotated[int, typer.Option(min=1, help="Number of channels of the inputs.")] = 64,
    size: Annotated[tuple[int, int], typer.Option(metavar="H W", help="Height and width of the usual input.")] = (
        11,
        9,
    ),
    timeout: Annotated[float, typer.Option(min=1, help="Stop a check after this many seconds.")] = 60.0,
) -> None:
    """Check that a module meets the contract of context modules; print one line for each check.

    A failed check has a hint. Exit codes: 0 the contract is met, 1 it is broken, 2 nothing to check.
    """
    from ctxbench.contract import lines
    from ctxbench.engine.client import ForkServer
    from ctxbench.engine.verify import verify as check_module
    from ctxbench.suite import settings

    with ForkServer(static=False) as server:
        results = check_module(
            module,
            server,
            channels=channels,
            hparams=settings.of_one_module(chosen or [], module, settings.class_name(module)),
            size=size,
            timeout_s=timeout,
            on_result=lambda result: render(lines.line(result)),
        )
    render(lines.summary(module, results))
    if any(result.broken for result in results):
        raise typer.Exit(EXIT_FAILED_CASES)
