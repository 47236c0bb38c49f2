"""`ctxbench run`: measure a suite."""

from typing import Annotated, Any

import typer

from ctxbench import api
from ctxbench.cli.options import SHARED, Given, asked_for, seconds
from ctxbench.cli.printing import print_runs, render, reporter
from ctxbench.cli.signature import command_of

Budget = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="TIME", help="Time for the whole suite, such as 5m: wide intervals get more processes."
    ),
]
TargetOption = Annotated[
    float | None,
    typer.Option(
        help="Stop sampling in a process when the median is known to this precision (0.02: plus or minus 2 %)."
    ),
]
MEASURE = {
    **SHARED["measure"],
    "total_s": Given(Budget, lambda text: seconds(text, "--budget")),
    "target": Given(TargetOption),
}
# How a suite is measured, whatever it is.
HOW = ("static", "counter", "out", "force", "in_process")


@command_of(
    api.run,
    metrics=typer.Option(help=f"Metrics to measure, separated by commas: {', '.join(asked_for())}."),
    measure=MEASURE,
)
def run(
    asked: dict[str, Any],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the cases with predicted memory and estimated time; measure nothing."),
    ] = False,
) -> None:
    """Measure the cases of a suite, write a run folder and print its table.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench.cli import describe
    from ctxbench.engine.plan import plan
    from ctxbench.engine.run import run_suite
    from ctxbench.model.read_suite import load

    shown = reporter()
    suite, how = asked.pop("suite"), {name: asked.pop(name) for name in HOW if name in asked}
    loaded = api.suite_of(suite, **asked)
    budget = "processes" in asked and "total_s" not in asked.get("measure", {}) and load(suite).file.measure.total_s
    if budget:
        processes = f"--processes {asked['processes']}"
        shown.note(f"the suite's budget of {budget:g} s does not count with {processes}; --budget sets one")
    if dry_run:
        render(describe.plan(plan(loaded, static=how["static"]), loaded.file.measure))
        return
    finished = run_suite(loaded, **how, reporter=shown)
    print_runs([finished])
