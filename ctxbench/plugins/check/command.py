"""`ctxbench check`: did a change make a module slower, larger or broken?"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import console, say
from ctxbench.cli.options import EXIT_INTERRUPTED, Given, RunItsCode, seconds
from ctxbench.cli.printing import reporter
from ctxbench.cli.signature import command_of
from ctxbench.plugins.check import function, request
from ctxbench.plugins.trees.options import Adapters

Renamed = Annotated[
    list[str] | None,
    typer.Option(metavar="OLD=NEW", help="With --against: a class that the other commit has under another name."),
]
Outputs = Annotated[
    str,
    typer.Option(
        metavar="must-match|may-change",
        help="With --against: fail with exit code 6 where outputs or gradients changed, or only tell.",
    ),
]
PredictedMargin = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Fail where the whole band of a predicted time, as with --for t4, grew by more; default: only tell it.",
    ),
]
COMPARED = "Compared with"
Margin = Annotated[str | None, typer.Option(help="The smallest change that matters; default: the suite's, else 5%.")]


@command_of(
    function.check,
    against=typer.Option(metavar="GIT_REF", rich_help_panel=COMPARED),
    baseline=typer.Option(rich_help_panel=COMPARED),
    renamed=Given(Renamed, request.parse_renamed),
    adapters=Adapters,
    outputs=Outputs,
    margin=Given(Margin, lambda text: request.parse_share(text, "--margin")),
    predicted_margin=Given(PredictedMargin, lambda text: request.parse_share(text, "--predicted-margin")),
    budget_s=None,
    inconclusive_is=None,
    run_its_code=None,
)
def check(
    asked: dict[str, Any],
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Compare the working tree with itself: which changes can this machine detect?",
            rich_help_panel=COMPARED,
        ),
    ] = False,
    inject: Annotated[
        str | None,
        typer.Option(
            metavar="CHANGE",
            help="With --self-test: slow down every other row by this much, such as 10%.",
            rich_help_panel=COMPARED,
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for the whole check, such as 90s or 10m.")] = "10m",
    run_its_code: RunItsCode = False,
    strict: Annotated[bool, typer.Option("--strict", help="Rows that stay inconclusive give exit code 3.")] = False,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect", help="A commit that cannot be judged gives exit code 125, which `git bisect run` skips."
        ),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary in Markdown to this file.")] = None,
) -> None:
    """Check whether a change made a module slower, larger or broken, or changed its outputs.

    Exit codes: 0 ok, 1 regressed, 2 wrong input, 3 inconclusive (with --strict), 4 newly broken or missing, 5 nothing
    compared, 6 outputs changed, 125 cannot tell (with --bisect).
    """
    from ctxbench.plugins.check import terminal
    from ctxbench.plugins.check.outputs import emit
    from ctxbench.plugins.check.self_test import self_test as test_itself

    if ("against" in asked) + ("baseline" in asked) + self_test != 1:
        raise UsageError("check takes one of --against GIT_REF, --baseline PATH and --self-test")
    if inject is not None and not self_test:
        raise UsageError(
            "--inject goes with --self-test: it slows down rows on purpose, to test whether the check finds them"
        )
    if "renamed" in asked and "against" not in asked:
        raise UsageError("--renamed goes with --against: it names a class that the other commit calls otherwise")
    if "adapters" in asked and "against" not in asked:
        raise UsageError("--adapter goes with --against: no other check takes modules from a commit")
    if run_its_code and "baseline" not in asked:
        raise UsageError("--run-its-code goes with --baseline: no other check runs code that a folder names")
    if not request.parse_outputs(asked["outputs"]) and "against" not in asked:
        raise UsageError("--outputs goes with --against: a stored run has no outputs")
    if strict and bisect:
        raise UsageError("check takes one of --strict and --bisect")
    for path in (junit, json_path, markdown):
        if path is not None:
            disk.make_folder(path.parent)
            disk.check_place(path)
    asked |= {"budget_s": seconds(budget, "--budget")}
    asked |= {"inconclusive_is": "fail" if strict else "skip" if bisect else "ok"}
    tested = None
    environ = dict(os.environ)
    try:
        if self_test:
            share = request.parse_share(inject, "--inject") if inject is not None else 0.0
            tested = test_itself(function.request_of(**asked), share, reporter())
            result, environ = tested.result, {}  # a job's summary does not get rows that are slowed down on purpose
        else:
            result = function.check(**asked, run_its_code=run_its_code, progress=reporter()).value
    except KeyboardInterrupt:
        say("interrupted: no verdict, and nothing is left behind", stderr=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    shown = console()
    emit(result, shown, junit, json_path, markdown, environ, tested)
    if tested is not None:
        shown.print(terminal.self_test_page(tested))
    raise typer.Exit(result.exit_code)
