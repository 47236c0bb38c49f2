"""`ctxbench diff`: what differs between two runs, in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.cli.printing import render


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN1", help="A run folder.")],
    second: Annotated[Path, typer.Argument(metavar="RUN2", help="Another one, which may be of another suite.")],
) -> None:
    """Print the numbers in which two runs differ, as ratios with intervals.

    Exact quantities come first, then times that can be told apart.

    Ratios are RUN2 over RUN1, with 95 % intervals; below are what was measured under other conditions and what cannot
    be told.
    """
    from ctxbench.report import difference

    (table,) = difference.diff(first, second).tables
    render(table)
