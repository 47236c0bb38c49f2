"""`ctxbench profile`: where in a module the time goes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.terminal import say
from ctxbench.cli.options import OF_MODULE
from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.profile import function

if TYPE_CHECKING:
    from ctxbench.plugins.profile.profile import Lines, Profile


@command_of(function.profile, hparams=OF_MODULE, trace=typer.Option(metavar="FOLDER"))
def profile(
    asked: Mapping[str, Any],
    lines: Annotated[
        str, typer.Option(help="own: the innermost line of your code; inner: of any code outside PyTorch.")
    ] = "own",
    csv: Annotated[Path | None, typer.Option(help="Write all rows, by line, submodule and operator, as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: the source with its costs, a tree, tables.")] = None,
) -> None:
    """Measure, or predict for a device, where in a module the time goes: by source line, submodule and operator.

    Rows are sorted by their time, and add up to the pass. `saves` is a row's time above the roofline of this machine,
    which is an upper bound of what can be saved. The last lines show the overhead of the profiler itself.
    """
    from ctxbench.plugins.profile.profile import LINES
    from ctxbench.plugins.profile.tables import parts

    if lines not in LINES:
        raise unknown("lines", lines, LINES)
    _check_places(csv, html)
    found = function.profile(**asked)
    for part in parts(found, lines):
        render(part)
    _write(found, lines, csv, html)
    if (trace := asked.get("trace")) is not None:
        say(f"wrote {trace / 'trace.json'}, which ui.perfetto.dev shows")
        say(f"wrote {trace / 'profile.speedscope.json'}, which speedscope.app shows")


def _check_places(csv: Path | None, html: Path | None) -> None:
    """UsageError where a file cannot be written, before anything is measured."""
    from ctxbench.base import disk

    for option, path, suffix in (("--csv", csv, ".csv"), ("--html", html, ".html")):
        if path is not None:
            if path.suffix.lower() != suffix:
                raise UsageError(f"{option} {path}: the name of such a file ends in {suffix}")
            disk.check_place(path)


def _write(found: "Profile", lines: "Lines", csv: Path | None, html: Path | None) -> None:
    from ctxbench.base import disk
    from ctxbench.plugins.profile.page import render_profile
    from ctxbench.plugins.profile.texts import as_csv

    for path, make in ((csv, as_csv), (html, render_profile)):
        if path is not None:
            disk.write(path, make(found, lines), is_named=True)
            say(f"wrote {path}")
