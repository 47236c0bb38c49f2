"""What the commands print: tables, progress, and where an interrupted run can be continued."""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ctxbench.cli.options import EXIT_FAILED_CASES
from ctxbench.terminal import console, say

if TYPE_CHECKING:
    from ctxbench.engine.progress import Quiet, QuietGate
    from ctxbench.report.run_data import RunData
    from ctxbench.results.run_folder import RunFolder


def reporter() -> "Quiet":
    from ctxbench.engine.progress import Live, Plain

    return Live() if sys.stderr.isatty() else Plain()


def gate_progress() -> "QuietGate":
    from ctxbench.engine.progress import LiveGate, PlainGate

    return LiveGate() if sys.stderr.isatty() else PlainGate()


def render(renderable: Any) -> None:
    from rich.text import Text

    # What is piped into a file or another program is not cut to 80 columns, unless COLUMNS says so.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    text = Text(renderable) if isinstance(renderable, str) else renderable
    shown = console(width=width)
    with shown.capture() if not sys.stdout.isatty() else nullcontext() as captured:
        shown.print(text, soft_wrap=isinstance(text, Text))
    if captured is not None:
        print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n")


def render_told(told: Any) -> None:
    """A part of what a child tells: a text, or a table."""
    from ctxbench.cli.describe import plain_table

    if told.columns:
        table = plain_table(*told.columns)
        for row in told.rows:
            table.add_row(*row)
        render(table)
    if told.text:
        render(told.text)


def print_runs(folders: "Sequence[RunFolder]") -> None:
    """The table of each run; exit code 1 if a case of one failed."""
    for folder in folders:
        print_run(folder.path)
    if any(folder.failed for folder in folders):
        raise typer.Exit(EXIT_FAILED_CASES)


def print_run(path: Path) -> None:
    from ctxbench.report.formats import terminal
    from ctxbench.report.run_data import RunData
    from ctxbench.report.tables import crossover
    from ctxbench.report.tables import suite as tables
    from ctxbench.results.run_folder import RunFolder

    folder = RunFolder.open(path)
    render(terminal.render_terminal(tables.comparison_table([folder])))
    run = RunData.read(folder)
    print_networks(run)
    if table := crossover.crossover_table(run):
        say("")
        render(terminal.render_terminal(table))
    say(f"run folder: {path}")


def print_networks(run: "RunData") -> None:
    """What modules add to the networks of a run."""
    from ctxbench.report.formats import terminal
    from ctxbench.report.tables.network import network_tables

    for table in network_tables(run):
        say("")
        render(terminal.render_terminal(table))


def print_interrupted(stop: KeyboardInterrupt, ray: str | None = None) -> None:
    """The table of what is known, how much that is, and how to go on."""
    from ctxbench.engine.run import Interrupted
    from ctxbench.results.run_folder import RunFolder, run_folders

    if not isinstance(stop, Interrupted):
        say("interrupted before anything was measured", stderr=True)
        return
    try:
        for path in run_folders(stop.path):
            if RunFolder.open(path).rows():
                print_run(path)
    finally:
        say(f"interrupted; {stop.done} of {stop.total} processes are in {stop.path}", stderr=True)
        where = f" --ray {ray}" if ray else ""
        say(f"continue with: ctxbench resume {stop.path}{where}", stderr=True)
