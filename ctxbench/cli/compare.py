"""`ctxbench compare`: a new module beside those of the registry."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxbench import metrics as known_metrics
from ctxbench.cli.options import (
    EXIT_FAILED_CASES,
    EXIT_INTERRUPTED,
    AlsoOn,
    Processes,
    SampleTime,
    Settings,
    Texts,
    complete_suite,
    overrides_of,
    split,
    with_conditions,
)
from ctxbench.cli.printing import gate_progress, print_interrupted, print_networks, render, reporter
from ctxbench.cli.run import ASKED_FOR
from ctxbench.terminal import say

if TYPE_CHECKING:
    from ctxbench.compare import Request
    from ctxbench.engine.client import ForkServer
    from ctxbench.ranking import Ranking

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
        typer.Option(metavar="NAME[,NAME]", help=f"Metrics instead of the suite's: {', '.join(ASKED_FOR)}."),
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
    from ctxbench import compare as comparing
    from ctxbench.engine.client import ForkServer
    from ctxbench.engine.run import machine
    from ctxbench.report.run_data import RunData
    from ctxbench.suite import settings

    request = comparing.Request(candidates, split(modules), settings.parse(chosen or []))
    overrides = overrides_of(conditions, also_on, processes=processes, sample_s=sample_s)
    overrides = replace(overrides, metrics=split(metrics))
    comparing.check_names(request, suite, overrides, rank_by, reuse)
    channels = comparing.channels_of(suite, overrides)
    with ForkServer() as server:
        environment = machine(server)
        found = [candidate for candidate in candidates if _is_broken(request, candidate, server, channels)]
        broken = list(dict.fromkeys(found))
    left_out = [] if anyway else broken
    if {*left_out} == {*candidates}:
        say("nothing was measured; fix the module, or use --anyway to measure it as it is", stderr=True)
        raise typer.Exit(EXIT_FAILED_CASES)
    if left_out:
        say(f"left out: {', '.join(left_out)}; fix it, or use --anyway to measure it as it is", stderr=True)
        request = request.without(left_out)
    cases, seconds = comparing.expected_s(request, suite, overrides)
    say(
        f"{cases} cases: about {seconds / 60:.1f} minutes, more where a pass is longer than the time for samples",
        stderr=True,
    )
    try:
        finished = comparing.measure(
            request,
            environment,
            suite=suite,
            overrides=overrides,
            broken=broken,
            reuse=reuse,
            out=out,
            reporter=reporter(),
        )
    except KeyboardInterrupt as stop:
        print_interrupted(stop)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for ranking in comparing.rankings(finished):
        _print_ranking(ranking, rank_by)
    for text in comparing.abilities(finished):
        say(text)
    print_networks(RunData.read(finished))
    say(f"run folder: {finished.path}")
    if finished.failed or left_out:
        raise typer.Exit(EXIT_FAILED_CASES)


def _is_broken(request: "Request", candidate: str, server: "ForkServer", channels: int) -> bool:
    """Whether a candidate breaks the contract with any of its settings; what was checked is printed."""
    from ctxbench import compare as comparing
    from ctxbench.contract import judged, lines

    with gate_progress() as shown:
        checked = list(comparing.check_contract(request, candidate, server, channels, shown.stage))
    for name, results in checked:
        for result in results:
            if result.outcome in ("failed", "not decided"):
                render(lines.line(result))
        render(lines.summary(name, results))
    return any(judged(results) == "broken" for _, results in checked)


def _print_ranking(ranking: "Ranking", rank_by: str) -> None:
    from ctxbench.ranking import sentences
    from ctxbench.report.tables.ranking import ranking_table

    render(ranking_table(ranking, rank_by))
    for text in sentences(ranking.standings):
        say(text)
