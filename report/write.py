"""Writes a report: tables in every format, figures, and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ctxbench.errors import UsageError, unknown

from .compact import Choice, compact_table
from .compare import compare_runs
from .figures import choose, write_figures
from .html import render_html
from .latex import NOTES, render_latex
from .markdown import render_markdown
from .page import render_page, report_command
from .panels import panels_of
from .runs import RunData, open_run
from .table import Table
from .tables import suite_table


@dataclass(frozen=True)
class Report:
    """What was written: the page, and every file with it."""

    page: Path
    files: tuple[Path, ...]


def write_report(
    runs: Sequence[Path],
    out: Path,
    figures: Sequence[str] | None = None,
    choice: Choice | None = None,
    published: Mapping[str, Any] | None = None,
    titles: bool = False,
    notes: str = "below",
) -> Report:
    """Write `index.html`, `tables/*` and `figures/*` below `out`, from the run folders alone.

    `figures` names the figures to draw (default: all that have data; none: an empty list). With a `choice`, a compact
    table of each run is written, too, and figures show its modules and inputs. `published` numbers take the place of
    the runs' own. With `titles`, figures and sentences name modules by title. `notes` says where the notes of LaTeX
    tables stand, one of `latex.NOTES`. UsageError for a damaged run, an unknown figure, one without data, a choice
    that a run does not have, an unknown place for notes, or a folder that cannot be written.
    """
    if notes not in NOTES:
        raise unknown("place of notes", notes, NOTES)
    read = _read(runs, titles, published or {})
    tables = _tables(read)
    compact = [compact_table(run, choice) for run in read] if choice else []
    chosen = panels_of([run.only(choice.modules, choice.shapes) for run in read] if choice else read)
    kinds = choose(figures, chosen)
    try:
        for folder in (out / "tables", out / "figures"):
            folder.mkdir(parents=True, exist_ok=True)
        written = [path for table in tables for path in _write_table(table, out / "tables", notes)]
        for number, table in enumerate(compact, 1):
            own = replace(table, name=f"{table.name}-{number}") if len(compact) > 1 else table
            written += _write_table(own, out / "tables", notes, choice.label if choice else "")
        drawn = write_figures(chosen, kinds, out / "figures")
        page = out / "index.html"
        command = report_command(runs, out, choice, titles)
        page.write_text(render_page(read, panels_of(read), tables, drawn, command), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror or error}") from None
    pictures = [path for figure in drawn for path in (figure.svg_path, figure.png_path, figure.pdf_path)]
    return Report(page, (page, *written, *pictures))


def _read(paths: Sequence[Path], titles: bool, published: Mapping[str, Any]) -> list[RunData]:
    if not paths:
        raise UsageError("a report needs at least one run folder")
    read = [replace(open_run(path, titles), added=published) for path in paths]
    for run, path in zip(read, paths, strict=True):
        if run.frame.empty:
            raise UsageError(f"{path} holds no record yet; there is nothing to report")
    return read


def _tables(runs: Sequence[RunData]) -> list[Table]:
    """The comparison first, if there are several runs; then each run's own table."""
    if len(runs) == 1:
        return [suite_table(runs[0])]
    own = [suite_table(run) for run in runs]
    named = [
        replace(table, name=f"{table.name}-{number}", title=f"{table.title} ({run.name})")
        for number, (table, run) in enumerate(zip(own, runs, strict=True), 1)
    ]
    return [compare_runs(runs), *named]


def _write_table(table: Table, folder: Path, notes: str, label: str = "") -> list[Path]:
    contents = {
        "md": render_markdown(table),
        "tex": render_latex(table, label, notes),
        "html": render_html(table),
        "csv": table.csv,
    }
    paths = []
    for ending, text in contents.items():
        path = folder / f"{table.stem}.{ending}"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
