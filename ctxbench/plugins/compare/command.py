"""`ctxbench compare`: a new module beside those of the registry."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import EXIT_FAILED_CASES, Given, asked_for, names, split
from ctxbench.cli.printing import render, reporter
from ctxbench.cli.signature import command_of
from ctxbench.model.metrics import quantities
from ctxbench.plugins.compare import comparison, function
from ctxbench.plugins.compare.comparison import BrokenModules

if TYPE_CHECKING:
    from rich.text import Text


RANKED = [key for key, quantity in quantities().items() if quantity.better]
Candidates = Annotated[
    list[str],
    typer.Argument(
        help="Your modules, with spaces or commas: path.py:Class, package.module:Class or keys. Their code is run."
    ),
]
Registered = Annotated[
    str | None,
    typer.Option(
        "--modules",
        "--module",
        metavar="NAME[,NAME]",
        help="Registry modules to compare them with; default: all, none with --at.",
    ),
]


@command_of(
    function.compare,
    candidates=Given(Candidates, names),
    modules=Given(Registered, split),
    metrics=typer.Option(metavar="NAME[,NAME]", help=f"Metrics instead of the suite's: {', '.join(asked_for())}."),
    at=typer.Option(rich_help_panel="What"),
    imgsz=typer.Option(rich_help_panel="What"),
    rank_by=typer.Option(help=f"Rank by one of {', '.join(RANKED)}."),
)
def compare(asked: Mapping[str, Any]) -> None:
    """Verify your modules, measure them with those of the registry, and print a ranking.

    Exit codes: 0 all is ok, 1 a module was left out or a case failed, 2 wrong input.
    """
    from rich.text import Text

    def tell(part: "Text | str") -> None:
        if isinstance(part, Text):
            render(part)
        else:
            say(part, stderr=True)

    try:
        found = function.compare(**asked, progress=reporter(), reporter=reporter(), on_part=tell)
    except BrokenModules as error:
        say(error.sentence, stderr=True)
        raise typer.Exit(EXIT_FAILED_CASES) from None
    for number, part in enumerate(found.parts):
        if number and not isinstance(part, str):
            say("")
        render(part)
    run = found.value.folder
    say(f"run folder: {run.path}")
    if comparison.FIGURE in [figure["name"] for figure in run.meta["definition"]["figures"]]:
        say(f"ctxbench report {run.path} --formats png draws the figure {comparison.FIGURE}: costs by hyper-parameter")
    if run.failed or len(run.meta["candidates"]) < len(asked["candidates"]):
        raise typer.Exit(EXIT_FAILED_CASES)
