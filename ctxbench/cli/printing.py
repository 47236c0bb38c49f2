"""Output of the commands: tables, progress, and the command that continues an interrupted run."""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ctxbench.base.terminal import console, say
from ctxbench.cli.options import EXIT_FAILED_CASES

if TYPE_CHECKING:
    from rich.text import Text

    from ctxbench.engine.progress import Quiet
    from ctxbench.results.run_folder import RunFolder
    from ctxbench.table.result import Stopped
    from ctxbench.table.table import Table


def reporter() -> "Quiet":
    from ctxbench.engine.progress import Live, Plain

    return Live() if sys.stderr.isatty() else Plain()


def render(shown: "Table | Text | str") -> None:
    from rich.text import Text

    from ctxbench.table.table import Table
    from ctxbench.table.terminal import TerminalTable

    # What is piped into a file or another program is not cut to 80 columns, unless COLUMNS says so.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    drawn = Text(shown) if isinstance(shown, str) else TerminalTable(shown) if isinstance(shown, Table) else shown
    screen = console(width=width)
    with screen.capture() if not sys.stdout.isatty() else nullcontext() as captured:
        screen.print(drawn, soft_wrap=isinstance(drawn, Text))
    if captured is not None:
        print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n")


def print_runs(folders: "Sequence[RunFolder]") -> None:
    """The table of each run; exit code 1 if a case of one failed."""
    for folder in folders:
        print_run(folder.path)
    if any(folder.failed for folder in folders):
        raise typer.Exit(EXIT_FAILED_CASES)


def print_run(path: Path) -> None:
    from ctxbench.plugin import loaded
    from ctxbench.report.run_data import open_run
    from ctxbench.report.tables.suite import suite_table

    run = open_run(path)
    render(suite_table(run))
    for table in (table for tables_of in loaded("printed") for table in tables_of(run)):
        say("")
        render(table)
    say(f"run folder: {path}")


def print_stopped(stop: "Stopped") -> None:
    """Print what is known, how much that is, and what goes on from there."""
    from ctxbench.results.run_folder import RunFolder, run_folders

    try:
        for part in stop.result.parts:
            render(part)
        for path in run_folders(stop.path) if stop.path else ():
            if RunFolder.open(path).rows():
                print_run(path)
    finally:
        say(str(stop), stderr=True)
