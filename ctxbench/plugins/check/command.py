"""`ctxbench check`: did a change make a module slower, larger or broken?"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import console, say
from ctxbench.cli.options import (
    EXIT_INTERRUPTED,
    Modules,
    Settings,
    SuiteName,
    Texts,
    names,
    overrides_of,
    seconds,
    split,
    with_conditions,
)
from ctxbench.cli.printing import gate_progress


@with_conditions()
def check(
    conditions: Mapping[str, Texts],
    against: Annotated[
        str | None, typer.Option(metavar="GIT_REF", help="Compare the working tree with this commit, branch or tag.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Compare with a stored run: a run folder or a records.csv."),
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test", help="Compare the working tree with itself: which changes can this machine detect?"
        ),
    ] = False,
    inject: Annotated[
        str | None,
        typer.Option(metavar="CHANGE", help="With --self-test: slow down every other row by this much, such as 10%."),
    ] = None,
    suite: SuiteName = "ci",
    modules: Modules = None,
    chosen: Settings = None,
    accept: Annotated[
        str | None, typer.Option(help="Exact costs that may grow, such as params,macs; their growth is still shown.")
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="With --against: a class that the other commit has under another name."),
    ] = None,
    outputs: Annotated[
        str,
        typer.Option(
            metavar="must-match|may-change",
            help="With --against: fail with exit code 6 where outputs or gradients changed, or only tell.",
        ),
    ] = "must-match",
    margin: Annotated[
        str | None, typer.Option(help="The smallest change that matters; default: the suite's, else 5%.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for the whole check, such as 90s or 10m.")] = "10m",
    strict: Annotated[bool, typer.Option("--strict", help="Rows that stay inconclusive give exit code 3.")] = False,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="What cannot be told gives exit code 125, as `git bisect run` takes it.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary in Markdown to this file.")] = None,
) -> None:
    """Check whether a change made a module slower, larger or broken: ok, regressed or inconclusive.

    Exit codes: 0 ok, 1 regressed, 2 wrong input, 3 inconclusive (with --strict), 4 newly broken or missing, 5 nothing
    compared, 6 outputs changed, 125 cannot tell (with --bisect).
    """
    from ctxbench.model import hparams as settings
    from ctxbench.model.read_suite import load
    from ctxbench.plugins.check import request, terminal
    from ctxbench.plugins.check.check_against import check_against
    from ctxbench.plugins.check.check_stored import check_stored
    from ctxbench.plugins.check.outputs import emit
    from ctxbench.plugins.check.self_test import self_test as test_itself

    if sum([against is not None, baseline is not None, self_test]) != 1:
        raise UsageError("check takes one of --against GIT_REF, --baseline PATH and --self-test")
    if inject is not None and not self_test:
        raise UsageError(
            "--inject goes with --self-test: it slows down rows on purpose, to test whether the check finds them"
        )
    if renamed and against is None:
        raise UsageError("--renamed goes with --against: it names a class that the other commit calls otherwise")
    must_match = request.parse_outputs(outputs)
    if not must_match and against is None:
        raise UsageError("--outputs goes with --against: a stored run has no outputs")
    if strict and bisect:
        raise UsageError("check takes one of --strict and --bisect")
    for path in (junit, json_path, markdown):
        if path is not None:
            disk.make_folder(path.parent)
            disk.check_place(path)
    overrides = replace(
        overrides_of(conditions),
        modules=names(modules),
        hparams=settings.parse(chosen or []),
    )
    asked = request.Request(
        load(suite, overrides),
        request.parse_share(margin, "--margin") if margin is not None else None,
        seconds(budget, "--budget"),
        "fail" if strict else "skip" if bisect else "ok",
        request.parse_accepted(split(accept) or []),
        request.parse_renamed(renamed or []),
        must_match,
    )
    tested = None
    environ = dict(os.environ)
    try:
        if self_test:
            tested = test_itself(
                asked, request.parse_share(inject, "--inject") if inject is not None else 0.0, gate_progress()
            )
            result, environ = tested.result, {}  # a job's summary does not get rows that are slowed down on purpose
        elif baseline is not None:
            result = check_stored(baseline, asked, gate_progress())
        else:
            result = check_against(str(against), asked, gate_progress())
    except KeyboardInterrupt:
        say("interrupted: no verdict, and nothing is left behind", stderr=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    shown = console()
    emit(result, shown, junit, json_path, markdown, environ, tested)
    if tested is not None:
        shown.print(terminal.self_test_page(tested))
    raise typer.Exit(result.exit_code)
