"""`ctxbench run`: measure a suite."""

from typing import Annotated, Any

import typer

from ctxbench import api
from ctxbench.base.errors import UsageError
from ctxbench.cli.options import EXIT_INTERRUPTED, SHARED, Given, Ray, asked_for, elsewhere, seconds
from ctxbench.cli.printing import print_interrupted, print_runs, render, reporter
from ctxbench.cli.signature import command_of

Budget = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="TIME", help="Time for the whole suite, such as 5m: wide intervals get more processes."
    ),
]
Target = Annotated[
    float | None,
    typer.Option(help="End a process's samples at this relative half-width of their median's interval, as 0.02."),
]
MEASURE = {
    **SHARED["measure"],
    "total_s": Given(Budget, lambda text: seconds(text, "--budget")),
    "target": Given(Target),
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
    ray: Ray = None,
    each_device: Annotated[
        bool,
        typer.Option("--each-device", help="With --ray: every kind of device measures every case, in its own folder."),
    ] = False,
) -> None:
    """Measure the cases of a suite, write a run folder and print its table.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench.cli import describe
    from ctxbench.engine.plan import plan
    from ctxbench.engine.run import run_suite
    from ctxbench.model.read_suite import load

    _check_ray_options(ray, each_device, static=asked["static"], dry_run=dry_run, in_process=asked["in_process"])
    shown = reporter()
    suite, how = asked.pop("suite"), {name: asked.pop(name) for name in HOW if name in asked}
    try:
        loaded = api.suite_of(suite, **asked)
        budget = "processes" in asked and "total_s" not in asked.get("measure", {}) and load(suite).file.measure.total_s
        if budget:
            processes = f"--processes {asked['processes']}"
            shown.note(f"the suite's budget of {budget:g} s does not count beside {processes}; --budget sets one")
        if dry_run:
            render(describe.plan(plan(loaded, static=how["static"]), loaded.file.measure))
            return
        if ray is not None:
            how = {name: how[name] for name in how if name not in ("static", "in_process")}
            runs = elsewhere("run")(loaded, ray, each_device=each_device, **how, reporter=shown)
        else:
            runs = [run_suite(loaded, **how, reporter=shown)]
    except KeyboardInterrupt as stop:
        print_interrupted(stop, ray)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print_runs(runs)


def _check_ray_options(ray: str | None, each_device: bool, **alone: bool) -> None:
    """UsageError for an option that means nothing on a cluster, or nothing without one."""
    if ray is None and each_device:
        raise UsageError("--each-device goes with --ray ADDRESS")
    for name, given in alone.items():
        if ray is not None and given:
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --ray: it needs no cluster")
