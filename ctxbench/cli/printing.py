"""What the commands print: tables, progress, and where an interrupted run can be continued."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxbench.engine.progress import Quiet, QuietGate


def reporter() -> "Quiet":
    from ctxbench.engine.progress import Live, Plain

    return Live() if sys.stderr.isatty() else Plain()


def gate_progress() -> "QuietGate":
    from ctxbench.engine.progress import LiveGate, PlainGate

    return LiveGate() if sys.stderr.isatty() else PlainGate()


def render(renderable: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    # what is piped into a file or another program is not cut to 80 columns
    width = None if sys.stdout.isatty() else 200
    text = Text(renderable) if isinstance(renderable, str) else renderable  # a plain str would be read as markup
    Console(width=width, soft_wrap=isinstance(text, Text)).print(text)


def print_run(path: Path) -> None:
    from ctxbench.report.formats import terminal
    from ctxbench.report.run_data import RunData
    from ctxbench.report.tables import crossover
    from ctxbench.report.tables import suite as tables
    from ctxbench.results.run_folder import RunFolder

    folder = RunFolder.open(path)
    render(terminal.render_terminal(tables.comparison_table([folder])))
    if table := crossover.crossover_table(RunData.read(folder)):
        print()
        render(terminal.render_terminal(table))
    print(f"run folder: {path}")


def print_interrupted(stop: KeyboardInterrupt, options: str = "") -> None:
    from ctxbench.engine.run import Interrupted

    if not isinstance(stop, Interrupted):
        print("interrupted before anything was measured", file=sys.stderr)
        return
    print(f"interrupted; {stop.done} of {stop.total} processes are in {stop.path}", file=sys.stderr)
    print(f"continue with: ctxbench run --resume {stop.path}{options}", file=sys.stderr)
