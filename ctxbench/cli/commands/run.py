"""`ctxbench run`: measure a suite."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.errors import UsageError
from ctxbench.cli.options import (
    EXIT_INTERRUPTED,
    AlsoOn,
    Budget,
    InProcess,
    Modules,
    Processes,
    Ray,
    SampleTime,
    Settings,
    SuiteName,
    Texts,
    asked_for,
    elsewhere,
    names,
    overrides_of,
    seconds,
    split,
    with_conditions,
)
from ctxbench.cli.printing import print_interrupted, print_runs, render, reporter


@with_conditions()
def run(
    context: typer.Context,
    conditions: Mapping[str, Texts],
    suite: SuiteName = "table3",
    modules: Modules = None,
    metrics: Annotated[
        str | None, typer.Option(help=f"Metrics to measure, separated by commas: {', '.join(asked_for())}.")
    ] = None,
    chosen: Settings = None,
    processes: Processes = None,
    sample_s: SampleTime = None,
    budget: Budget = None,
    target: Annotated[
        float | None,
        typer.Option(help="End a process's samples at this relative half-width of their median's interval, as 0.02."),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Only params, MACs and predicted memory; no module is timed.")
    ] = False,
    counter: Annotated[str, typer.Option(help="What counts the MACs: ctxbench or torchprofile.")] = "ctxbench",
    out: Annotated[Path | None, typer.Option(help="The run folder; default: results/<suite>-<time>.")] = None,
    also_on: AlsoOn = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the cases with predicted memory and estimated time; measure nothing."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also measure cases that are predicted not to fit into memory.")
    ] = False,
    in_process: InProcess = False,
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
    from ctxbench.model import hparams as settings
    from ctxbench.model.read_suite import load

    _check_ray_options(context)
    shown = reporter()
    try:
        overrides = replace(
            overrides_of(
                conditions,
                also_on,
                processes=processes,
                sample_s=sample_s,
                total_s=seconds(budget, "--budget") if budget is not None else None,
                target=target,
            ),
            modules=names(modules),
            metrics=split(metrics),
            hparams=settings.parse(chosen or []),
        )
        loaded = load(suite, overrides)
        if overrides.leaves_out_budget and (total_s := load(suite).file.measure.total_s):
            shown.note(
                f"the suite's budget of {total_s:g} s does not count beside --processes {processes}; --budget sets one"
            )
        if dry_run:
            render(describe.plan(plan(loaded, static=static), loaded.file.measure))
            return
        if ray is not None:
            runs = elsewhere("run")(
                loaded, ray, each_device=each_device, counter=counter, out=out, force=force, reporter=shown
            )
        else:
            runs = [
                run_suite(
                    loaded,
                    static=static,
                    counter=counter,
                    out=out,
                    force=force,
                    in_process=in_process,
                    reporter=shown,
                )
            ]
    except KeyboardInterrupt as stop:
        print_interrupted(stop, ray)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print_runs(runs)


def _check_ray_options(context: typer.Context) -> None:
    """UsageError for an option that means nothing on a cluster, or nothing without one."""
    if context.params["ray"] is None and context.params["each_device"]:
        raise UsageError("--each-device goes with --ray ADDRESS")
    for name in ("static", "dry_run", "in_process"):
        if context.params["ray"] is not None and context.params[name]:
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --ray: it needs no cluster")
