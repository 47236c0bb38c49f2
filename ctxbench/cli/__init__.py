"""The command line: each command parses, calls one function, prints."""

import signal
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from ctxbench.cli import streams, surroundings
from ctxbench.cli.check import check
from ctxbench.cli.compare import compare
from ctxbench.cli.env import env
from ctxbench.cli.list_modules import list_modules
from ctxbench.cli.memory import memory
from ctxbench.cli.new import new
from ctxbench.cli.options import EXIT_INTERNAL, EXIT_USAGE
from ctxbench.cli.predict import predict
from ctxbench.cli.report import report
from ctxbench.cli.resume import resume
from ctxbench.cli.run import run
from ctxbench.cli.show import show
from ctxbench.cli.verify import verify
from ctxbench.errors import AlteredRun, UsageError
from ctxbench.terminal import say

app = typer.Typer(
    name="ctxbench",
    help="Benchmark global-context modules: the parameters, MACs, peak memory and latency of blocks that map "
    "[B, C, H, W] to [B, C', H, W].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (run, resume, show, verify, compare, new, memory, predict, report, check, env):
    app.command()(command)
app.command("list")(list_modules)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"ctxbench {version('ctxbench')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


_as_python_does = warnings.showwarning


def main() -> None:
    """Entry point: a wrong input, or what the machine lacks, is one sentence on standard error and exit code 2.

    A defect of ctxbench itself has its own exit code, so that it is not taken for a verdict. SIGTERM, with which CI
    systems cancel a job, ends a command as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    streams.prepare()
    warnings.showwarning = _show_warning
    try:
        app()
    except SystemExit as end:
        if not end.code and (sentence := streams.unwritten()):
            _end(sentence)
        raise
    except UsageError as error:
        _end(str(error))
    except Exception as error:
        if sentence := surroundings.sentence(error):
            _end(sentence)
        say(traceback.format_exc().rstrip(), stderr=True)
        raise SystemExit(EXIT_INTERNAL) from None


def _end(sentence: str) -> NoReturn:
    say(f"ctxbench: {sentence}", stderr=True)
    raise SystemExit(EXIT_USAGE) from None


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **others: Any) -> None:
    """A warning of ours as a sentence; any other as Python shows it."""
    if issubclass(category, AlteredRun):
        say(f"ctxbench: {message}", stderr=True)
    else:
        _as_python_does(message, category, *where, **others)
