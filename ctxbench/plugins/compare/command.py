"""`ctxbench compare`: a new module beside those of the registry."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import EXIT_FAILED_CASES, EXIT_INTERRUPTED
from ctxbench.cli.printing import gate_progress, print_interrupted, render, reporter
from ctxbench.cli.signature import command_of
from ctxbench.plugins.compare import function
from ctxbench.plugins.compare.comparison import BrokenModules

if TYPE_CHECKING:
    from rich.text import Text


@command_of(function.compare)
def compare(asked: Mapping[str, Any]) -> None:
    """Verify your modules, measure them beside those of the registry, and print a ranking.

    Exit codes: 0 all is ok, 1 a module breaks the contract or a case failed, 2 wrong input.
    """
    from rich.text import Text

    def tell(part: "Text | str") -> None:
        if isinstance(part, Text):
            render(part)
        else:
            say(part, stderr=True)

    try:
        found = function.compare(**asked, progress=gate_progress(), reporter=reporter(), on_part=tell)
    except BrokenModules as error:
        say(str(error), stderr=True)
        raise typer.Exit(EXIT_FAILED_CASES) from None
    except KeyboardInterrupt as stop:
        print_interrupted(stop)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for number, part in enumerate(found.parts):
        if number and not isinstance(part, str):
            say("")
        render(part)
    run = found.value.folder
    say(f"run folder: {run.path}")
    if run.failed or len(run.meta["candidates"]) < len(asked["candidates"]):
        raise typer.Exit(EXIT_FAILED_CASES)
