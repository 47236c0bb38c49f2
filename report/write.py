"""Writes a report: tables in every format, figures, and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.extras import with_science
from ctxbench.model.published import Published
from ctxbench.model.read_suite import package_of
from ctxbench.plugin import loaded
from ctxbench.table.html import render_html
from ctxbench.table.latex import NOTES, render_latex, render_tabular
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Table

from .figures.kinds import WRITERS, choose, write_figure
from .figures.layout import PAGE, FigureSize
from .page import render_page, report_command
from .panels import panels_of
from .run_data import RunData, open_run
from .tables.compact import Choice, compact_table
from .tables.curve import curve_tables
from .tables.runs import compare_runs
from .tables.suite import suite_table

# Columns of a compact table that fit on a page.
MOST_COLUMNS = 8
# In the page of a report: the files beside it are of that report.
MARK = '<meta name="generator" content="ctxbench">'


# How a table is written, by the ending of the file; the label and the place of the notes are those of LaTeX.
FORMATS: dict[str, Callable[[Table, str, str], str]] = {
    "md": lambda table, label, notes: render_markdown(table),
    "tex": render_latex,
    "tabular.tex": lambda table, label, notes: render_tabular(table),
    "html": lambda table, label, notes: render_html(table),
    "csv": lambda table, label, notes: table.csv,
}


@dataclass(frozen=True)
class Report:
    """Written files: the page, and every file with it; `lines` are the plugins' remarks on the runs.

    `hints` are lines on tables that are too wide for a page, and on what is not installed.
    """

    page: Path
    files: tuple[Path, ...]
    lines: tuple[str, ...]
    hints: tuple[str, ...]


def write_report(
    runs: Sequence[Path],
    out: Path,
    figures: Sequence[str] | None = None,
    choice: Choice | None = None,
    published: Published | None = None,
    keys: Mapping[str, Sequence[str]] | None = None,
    titles: bool = False,
    notes: str = "below",
    formats: Sequence[str] = (),
    sheet: FigureSize = PAGE,
    force: bool = False,
    on_step: Callable[[str], object] = lambda _: None,
) -> Report:
    """Write `index.html`, `tables/*` and `figures/*` below `out`, from the run folders alone.

    `figures` names the figures to draw (default: all that have data; none: an empty list). With a `choice`, a compact
    table of each run is written, too, and figures show its modules and inputs. The `published` table and the texts of
    `keys`, which plugins bring, take the place of the runs' own. With `titles`, figures and sentences name modules by
    title. `notes` says where the notes of LaTeX tables stand, one of `latex.NOTES`. Figures are written as SVG and as
    each of `formats`, of `kinds.WRITERS`, for the `sheet` that they are printed on. Only with `force` is a file
    replaced that no report wrote. `on_step` is told what is done next. UsageError for a damaged run, an unknown figure,
    one without data or empty, a choice or a pair that the runs do not have, an unknown place for notes or format, or a
    folder that cannot be written.
    """
    if notes not in NOTES:
        raise unknown("place of notes", notes, NOTES)
    for ending in formats:
        if ending not in WRITERS:
            raise unknown("format of figures", ending, WRITERS)
    read = _read(runs, titles, published, keys or {})
    on_step("making the tables")
    tables, compact = _tables(read), _compact_tables(read, choice)
    panels = panels_of(read)
    chosen = panels_of([run.only(choice.modules, choice.shapes) for run in read]) if choice else panels
    kinds = choose(figures, chosen)
    curves = [table for kind in kinds if kind.curve for table in curve_tables(chosen, kind.curve)]
    page, folders = out / "index.html", (out / "tables", out / "figures")
    if not force:
        kept = [folders[0] / f"{each.stem}.{ending}" for each in (*tables, *curves, *compact) for ending in FORMATS]
        kept += [folders[1] / f"{kind.name}.{ending}" for kind in kinds for ending in ("svg", *formats)]
        disk.check_replaced((page, *kept), MARK, of=page, advice="remove it, or add --force")
    for folder in folders:
        disk.make_folder(folder, below=out)
    label = choice.label if choice else ""
    written = [path for table in (*tables, *curves) for path in _write_table(table, out / "tables", "", notes)]
    written += [path for table in compact for path in _write_table(table, out / "tables", label, notes)]
    drawn = []
    for number, kind in enumerate(kinds, 1):
        on_step(f"drawing figure {number} of {len(kinds)}: {kind.name}")
        drawn.append(write_figure(chosen, kind, out / "figures", formats, sheet))
    command = report_command(runs, out, choice, keys or {}, titles, sheet)
    disk.write(page, render_page(read, panels, tables, curves, drawn, command))
    pictures = [path for figure in drawn for path in figure.paths.values()]
    lines = [line for run in read for tell in loaded("lines") for line in tell(run)]
    hints = [
        f"{table.name} has {len(table.columns)} columns, as the run has several inputs; `--shape` takes one"
        for table, run in zip(compact, read, strict=False)
        if len(table.columns) > MOST_COLUMNS and len({row["shape"] for row in run.rows}) > 1
    ]
    if any(package_of(run.suite) for run in read):
        hints += filter(None, [with_science("the claims of suites").removeprefix("; ")])
    return Report(page, (page, *written, *pictures), tuple(lines), tuple(hints))


def _read(
    paths: Sequence[Path], titles: bool, published: Published | None, keys: Mapping[str, Sequence[str]]
) -> list[RunData]:
    if not paths:
        raise UsageError("a report needs at least one run folder")
    read = [replace(open_run(path, titles), added=published, given=keys) for path in paths]
    for run, path in zip(read, paths, strict=True):
        if not run.rows:
            raise UsageError(f"{path} holds no record yet; there is nothing to report")
    for check in loaded("checks"):
        check(read)
    return read


def _compact_tables(runs: Sequence[RunData], choice: Choice | None) -> list[Table]:
    """The compact table of each run, if there is a choice; of several runs, numbered."""
    tables = [compact_table(run, choice) for run in runs] if choice else []
    if len(tables) < 2:
        return tables
    return [replace(table, name=f"{table.name}-{number}") for number, table in enumerate(tables, 1)]


def _tables(runs: Sequence[RunData]) -> list[Table]:
    """The comparison first, if there are several runs; then each run's own table, and those of plugins."""
    kinds = (lambda run: [suite_table(run)], *loaded("tables"))
    made = [(run, number, table) for make in kinds for number, run in enumerate(runs, 1) for table in make(run)]
    if len(runs) == 1:
        return [table for _, _, table in made]
    named = [
        replace(table, name=f"{table.name}-{number}", title=f"{table.title} ({run.name})")
        for run, number, table in made
    ]
    return [compare_runs(runs), *named]


def _write_table(table: Table, folder: Path, label: str, notes: str) -> list[Path]:
    paths = []
    for ending, render in FORMATS.items():
        path = folder / f"{table.stem}.{ending}"
        disk.write(path, render(table, label, notes))
        paths.append(path)
    return paths
