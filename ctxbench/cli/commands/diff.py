"""`ctxbench diff`: what differs between two runs, in the terminal."""

from collections.abc import Mapping
from typing import Any

import typer

from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.report import difference


@command_of(difference.diff, first=typer.Argument(metavar="RUN1"), second=typer.Argument(metavar="RUN2"))
def diff(asked: Mapping[str, Any]) -> None:
    """Print the numbers in which two runs differ, as ratios with intervals.

    Exact quantities come first, then times that can be told apart.

    Ratios are RUN2 over RUN1, with 95 % intervals; below are what was measured under other conditions and what cannot
    be told.
    """
    (table,) = difference.diff(**asked).tables
    render(table)
