"""`ctxbench report`: tables, figures and a page from run folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ctxbench.base import disk
from ctxbench.base.terminal import say
from ctxbench.cli.options import Given, ModulesOption, condition_option, names, split
from ctxbench.cli.signature import command_of
from ctxbench.plugin import brought

OUT = Path("ctxbench-report")


def of_suites(keys: Mapping[str, Sequence[str]]) -> None:
    """Parameters of `report` that plugins bring."""


def _options() -> dict[str, Given]:
    return {
        name: Given(Annotated[str | None, typer.Option(metavar=key.metavar, help=key.help)], split)
        for _, (name, key) in brought("keys")
    }


@command_of(of_suites, keys=_options())
def report(
    arguments: dict[str, Any],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are shown side by side.")],
    shape: Annotated[list[str] | None, condition_option("shape")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the page, tables and figures.")] = OUT,
    figures: Annotated[
        str | None,
        typer.Option(help="Names of figures, separated by commas; default: all that have data, but samples."),
    ] = None,
    formats: Annotated[
        str | None, typer.Option(help="Write figures, which are SVG, also as png, pdf or both with a comma.")
    ] = None,
    width: Annotated[
        str,
        typer.Option(
            metavar="column|page|INCHES",
            help="How wide figures are printed: 3.3, 6.9 or so many inches; text is 7 to 9 pt.",
        ),
    ] = "page",
    no_heading: Annotated[
        bool, typer.Option("--no-heading", help="Leave out the title and the line on the input above figures.")
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(help="Also write a compact table of these quantities, such as params,macs,latency_infer."),
    ] = None,
    modules: ModulesOption = None,
    title: Annotated[str, typer.Option(help="The title of the compact table.")] = "",
    label: Annotated[str, typer.Option(help="The LaTeX label of the compact table.")] = "",
    notes: Annotated[
        str, typer.Option(help="Where the notes of the LaTeX tables stand: below, short, threeparttable or none.")
    ] = "below",
    titles: Annotated[
        bool, typer.Option("--titles", help="Name modules by title, not by key, in figures and sentences as in tables.")
    ] = False,
    published: Annotated[
        Path | None, typer.Option(help="A file with a published table, shown next to the runs' numbers.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files in the folder that no report of ctxbench has written.")
    ] = False,
) -> None:
    """Write tables, figures and a page from run folders; measure nothing.

    --columns, --modules, --shape, --title and --label make a compact table for a paper beside the whole one. --modules
    and --shape also choose what the figures show.
    """
    from ctxbench.model.conditions import parse_shape
    from ctxbench.model.published import Published
    from ctxbench.model.read_suite import read_published
    from ctxbench.report.figures.layout import FigureSize
    from ctxbench.report.tables.compact import Choice
    from ctxbench.report.write import write_report
    from ctxbench.results.run_folder import run_folders

    if out == OUT:  # which nobody named: it may have come with the folder that it is in
        disk.refuse_link(out)
    sheet, choice = FigureSize.of(width, heading=not no_heading), None
    if any((columns, modules, shape, title, label)):
        shapes = ["x".join(map(str, parse_shape(text))) for text in shape or []]
        choice = Choice(split(columns) or [], names(modules) or [], shapes, title, label)
    numbers = read_published(str(published), Published) if published else None
    folders = [folder for path in runs for folder in run_folders(path)]
    written = write_report(
        folders, out, split(figures), choice, numbers, arguments.get("keys", {}), titles, notes,
        formats=list(dict.fromkeys(split(formats) or [])), sheet=sheet, force=force,
        on_step=lambda text: say(text, stderr=True),
    )  # fmt: skip
    for line in (*written.lines, *written.hints):
        say(line)
    for kind in ("tables", "figures"):
        names_ = dict.fromkeys(Path(file).stem for file in written.files if Path(file).parent.name == kind)
        say(f"{kind}: {', '.join(names_) or 'none'}")
    say(f"{len(written.files)} files; open {written.page}, or send it: that file alone is the whole page")
