"""`ctxbench compare`: a new module beside those of the registry."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxbench.base.terminal import say
from ctxbench.cli.options import (
    EXIT_FAILED_CASES,
    EXIT_INTERRUPTED,
    AlsoOn,
    Processes,
    SampleTime,
    Settings,
    Texts,
    asked_for,
    complete_suite,
    overrides_of,
    split,
    with_conditions,
)
from ctxbench.cli.printing import gate_progress, print_interrupted, render, reporter
from ctxbench.model import metrics as known_metrics

if TYPE_CHECKING:
    from rich.text import Text

RANKED = [key for key, quantity in known_metrics.quantities().items() if quantity.better]


@with_conditions()
def compare(
    candidates: Annotated[
        list[str], typer.Argument(help="Your modules: path.py:Class, package.module:Class or keys. Their code is run.")
    ],
    conditions: Mapping[str, Texts],
    modules: Annotated[
        str | None,
        typer.Option(
            "--modules", "--module", metavar="NAME[,NAME]", help="Registry modules beside them; default: all."
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="Inputs and settings: a suite's name, or the path of a TOML file.", autocompletion=complete_suite
        ),
    ] = "compare",
    also_on: AlsoOn = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help=f"Metrics instead of the suite's: {', '.join(asked_for())}."),
    ] = None,
    processes: Processes = None,
    sample_s: SampleTime = None,
    chosen: Settings = None,
    rank_by: Annotated[str, typer.Option(help=f"Rank by one of {', '.join(RANKED)}.")] = "latency_infer",
    reuse: Annotated[
        Path | None, typer.Option(help="Copy the rows of registry modules from this earlier run folder.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also measure modules that do not meet the contract.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder; default: results/compare-<time>.")] = None,
) -> None:
    """Verify your modules, measure them beside those of the registry, and print a ranking.

    Exit codes: 0 all is ok, 1 a module breaks the contract or a case failed, 2 wrong input.
    """
    from rich.text import Text

    from ctxbench.model import hparams as settings
    from ctxbench.plugins.compare import function
    from ctxbench.plugins.compare.comparison import BrokenModules

    def tell(part: "Text | str") -> None:
        if isinstance(part, Text):
            render(part)
        else:
            say(part, stderr=True)

    overrides = overrides_of(conditions, also_on, processes=processes, sample_s=sample_s)
    try:
        found = function.compare(
            candidates, split(modules), suite=suite, metrics=split(metrics), rank_by=rank_by,
            hparams=settings.parse(chosen or []), measure=overrides.measure, also_on=overrides.also_on, reuse=reuse,
            anyway=anyway, out=out, progress=gate_progress(), reporter=reporter(), on_part=tell, **overrides.conditions,
        )  # fmt: skip
    except BrokenModules as error:
        say(str(error), stderr=True)
        raise typer.Exit(EXIT_FAILED_CASES) from None
    except KeyboardInterrupt as stop:
        print_interrupted(stop)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for number, part in enumerate(found.parts):
        if number and not isinstance(part, str):
            say("")
        render(part)
    run = found.value.folder
    say(f"run folder: {run.path}")
    if run.failed or len(run.meta["candidates"]) < len(candidates):
        raise typer.Exit(EXIT_FAILED_CASES)
