"""The command line: each command parses, calls one function, prints."""

import signal
import sys
import traceback
from typing import Annotated

import typer

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
from ctxbench.errors import UsageError

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


def main() -> None:
    """Entry point: a wrong input is one sentence on standard error and exit code 2.

    A defect of ctxbench itself has its own exit code, so that it is not taken for a verdict. SIGTERM, with which CI
    systems cancel a job, ends a command as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except UsageError as error:
        print(f"ctxbench: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(EXIT_INTERNAL) from None
