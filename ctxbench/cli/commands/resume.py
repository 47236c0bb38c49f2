"""`ctxbench resume`: continue an interrupted run."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.errors import UsageError
from ctxbench.cli.options import EXIT_INTERRUPTED, InProcess, Ray, RunItsCode, elsewhere
from ctxbench.cli.printing import print_interrupted, print_runs, reporter


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder, with the settings in its run.json.")],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also measure the failed cases again.")] = False,
    in_process: InProcess = False,
    ray: Ray = None,
    run_its_code: RunItsCode = False,
) -> None:
    """Measure what a run folder lacks, with the settings that it was begun with, and print its table.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench.engine import run

    if ray is not None and in_process:
        raise UsageError("--in-process cannot be used with --ray: it needs no cluster")
    try:
        if ray is not None:
            runs = elsewhere("resume")(
                folder, ray, retry_failed=retry_failed, run_its_code=run_its_code, reporter=reporter()
            )
        else:
            runs = [
                run.resume(
                    folder,
                    retry_failed=retry_failed,
                    in_process=in_process,
                    run_its_code=run_its_code,
                    reporter=reporter(),
                )
            ]
    except KeyboardInterrupt as stop:
        print_interrupted(stop, ray)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print_runs(runs)
