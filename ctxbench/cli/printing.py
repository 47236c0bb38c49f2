"""What the commands print: tables, progress, and where an interrupted run can be continued."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.terminal import console, say

if TYPE_CHECKING:
    from ctxbench.engine.progress import Quiet, QuietGate


def reporter() -> "Quiet":
    from ctxbench.engine.progress import Live, Plain

    return Live() if sys.stderr.isatty() else Plain()


def gate_progress() -> "QuietGate":
    from ctxbench.engine.progress import LiveGate, PlainGate

    return LiveGate() if sys.stderr.isatty() else PlainGate()


def render(renderable: Any) -> None:
    from rich.text import Text

    # what is piped into a file or another program is not cut to 80 columns
    width = None if sys.stdout.isatty() else 200
    text = Text(renderable) if isinstance(renderable, str) else renderable
    console(width=width).print(text, soft_wrap=isinstance(text, Text))


def print_run(path: Path) -> None:
    from ctxbench.report.formats import terminal
    from ctxbench.report.run_data import RunData
    from ctxbench.report.tables import crossover, predicted
    from ctxbench.report.tables import suite as tables
    from ctxbench.results.run_folder import RunFolder

    folder = RunFolder.open(path)
    render(terminal.render_terminal(tables.comparison_table([folder])))
    read = RunData.read(folder)
    made = (crossover.crossover_table, predicted.predicted_crossover_table, predicted.predicted_table)
    for table in (make(read) for make in made):
        if table:
            say("")
            render(terminal.render_terminal(table))
    say(f"run folder: {path}")


def print_interrupted(stop: KeyboardInterrupt, options: str = "") -> None:
    from ctxbench.engine.run import Interrupted

    if not isinstance(stop, Interrupted):
        say("interrupted before anything was measured", stderr=True)
        return
    say(f"interrupted; {stop.done} of {stop.total} processes are in {stop.path}", stderr=True)
    say(f"continue with: ctxbench run --resume {stop.path}{options}", stderr=True)
