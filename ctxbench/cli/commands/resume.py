"""`ctxbench resume`: continue an interrupted run."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.cli.options import InProcessOption, RunItsCode
from ctxbench.cli.printing import print_runs, reporter


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder, with the settings in its run.json.")],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also measure the failed cases again.")] = False,
    in_process: InProcessOption = False,
    run_its_code: RunItsCode = False,
) -> None:
    """Measure what a run folder lacks, with the settings that it was begun with, and print its table.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench.engine import run

    finished = run.resume(
        folder,
        retry_failed=retry_failed,
        in_process=in_process,
        run_its_code=run_its_code,
        reporter=reporter(),
    )
    print_runs([finished])
