"""The page: one self-contained HTML file with the tables, the figures, the warnings and the environment."""

import base64
import html
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxbench.table.html import fill_page, trusted
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Table, TableColumn

from .figures.kinds import Written
from .figures.layout import PAGE, FigureSize
from .figures.style import inline_svg
from .panels import Panel
from .run_data import RunData
from .summary import comparison_sentences, run_sentences
from .tables.caption import setup
from .tables.compact import Choice

TEMPLATES = "ctxbench.report:templates"
# Columns that a reader has to ask for, by their part, and the most values of a column that a list offers.
_ASKED_FOR = ("rates", "control")
_MOST_CHOICES = 12
# A larger CSV stays beside the page instead of inside it.
_LARGEST_INSIDE = 2_000_000


def render_page(
    runs: Sequence[RunData],
    panels: Sequence[Panel],
    tables: Sequence[Table],
    curves: Sequence[Table],
    figures: Sequence[Written],
    command: str,
) -> str:
    """The whole page. `command` regenerates the report; a figure's own command adds `--figures NAME`.

    `tables` are of whole runs, `curves` of the figures that have tables.
    """
    return fill_page(
        f"{TEMPLATES}/page.html",
        f"{TEMPLATES}/page.js",
        [f"{TEMPLATES}/page.css"],
        title=tables[0].title,
        names=", ".join(run.name for run in runs),
        summary=_summary(runs, panels, tables),
        runs=[_run(run) for run in runs],
        sections=[_section(table, f"table-{number}") for number, table in enumerate([*tables, *curves], 1)],
        figures=[_figure(figure, command) for figure in figures],
        warnings=list(_warnings(runs, tables)),
    )


def _summary(runs: Sequence[RunData], panels: Sequence[Panel], tables: Sequence[Table]) -> list[tuple[str, list[str]]]:
    """Headings and the sentences below them: of several runs how they differ, of one run what it says by device."""
    if len(runs) > 1:
        return [("", comparison_sentences(runs, tables[0]))]
    return [(panel.title if len(panels) > 1 else "", run_sentences(panel)) for panel in panels]


def _run(run: RunData) -> dict[str, Any]:
    failed = sum(row["status"] != "ok" for row in run.rows)
    facts = {"command": run.meta.get("command"), **run.environment, "measure": run.definition.get("measure")}
    if calls := [*dict.fromkeys(_without_folder(row["built"]) for row in run.rows if row["built"])]:
        facts["built"] = "; ".join(calls)
    return {
        "name": run.name,
        "setup": setup(run),
        "rows": len(run.rows),
        "failed": failed,
        "command": run.meta.get("command", ""),
        "facts": [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in facts.items()],
    }


def _without_folder(call: str) -> str:
    """The call that built a module, with the name of its file alone: a page tells no path of this machine."""
    place, paren, arguments = call.partition("(")
    return f"{place.rpartition('/')[2]}{paren}{arguments}"


def _section(table: Table, name: str) -> dict[str, Any]:
    inside = len(table.csv) < _LARGEST_INSIDE
    downloads = [
        ("csv", _data_address(table.csv.encode(), "text/csv") if inside else f"tables/{table.stem}.csv"),
        ("md", _data_address(render_markdown(table).encode(), "text/markdown")),
    ]
    return {
        "id": name,
        "table": table,
        "filtered": any(row.module for row in table.rows),
        "families": sorted({row.family for row in table.rows}),
        "statuses": sorted({row.status for row in table.rows}),
        "choices": _choices(table),
        "more": [_is_more(column) for column in table.columns],
        "few": {
            positions[0]: sum(not _is_more(table.columns[i]) for i in positions) for _, positions in table.groups()
        },
        "downloads": downloads,
    }


def _is_more(column: TableColumn) -> bool:
    """Return whether a column stands in the table only if all are asked for."""
    beside = column.header == "on CPU"  # the same as predicted, on the machine's own processor
    ratio = column.origin == "ratio" and bool(column.group)
    return ratio or beside or column.part in _ASKED_FOR or "macs_train" in column.key


def _choices(table: Table) -> list[tuple[str, int, list[str]]]:
    """Of each column that names rows, but the module's: heading, place and values, where there are a few."""
    found = []
    for place in table.labels()[1:]:
        values = list(dict.fromkeys(row.cells[place].text for row in table.rows))
        if 1 < len(values) <= _MOST_CHOICES:
            found.append((table.columns[place].header, place, values))
    return found


def _figure(figure: Written, command: str) -> dict[str, Any]:
    name = figure.kind.name
    return {
        "name": name,
        "title": figure.kind.title,
        "caption": figure.drawing.caption,
        "svg": trusted(_described(inline_svg(figure.svg, name), name, figure.kind.title, figure.drawing.details)),
        "downloads": [
            (path.name, ending.upper(), f"{path.parent.name}/{path.name}") for ending, path in figure.paths.items()
        ],
        "command": f"{command} --figures {name}",
    }


def _described(svg: str, prefix: str, title: str, details: Mapping[str, str]) -> str:
    """The SVG with a name for those who do not see it, and a `<title>` on each artist that has more to say."""
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)

    def describe(found: re.Match[str]) -> str:
        text = details.get(found[1])
        return found[0] if text is None else f"{found[0]}<title>{html.escape(text)}</title>"

    return re.sub(rf'<g id="{re.escape(prefix)}-(detail-\d+)">', describe, svg)


def _data_address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _warnings(runs: Sequence[RunData], tables: Sequence[Table]) -> Iterator[str]:
    """Warnings for the reader: unfinished runs, and each footnote on our own numbers with its rows.

    With several runs the first table compares them and each of the next is a run's own. The tables of
    plugins come last, with their footnotes below them.
    """
    for run in runs:
        if run.unfinished:
            yield f"{run.name} is not finished: rows are missing."
        if sentence := run.folder.altered():
            yield f"{sentence}."
    places: dict[str, list[str]] = {}
    names = [run.name for run in runs]
    for table, place in zip(tables, names if len(runs) == 1 else ["", *names], strict=False):
        for number, modules in sorted(_concerned(table).items()):
            places.setdefault(f"{', '.join(modules)}: {table.notes[number - 1]}", []).append(place)
    for sentence, where in places.items():
        yield sentence if len(runs) == 1 or where == [""] else f"{sentence} ({', '.join(where)})"


def _concerned(table: Table) -> dict[int, dict[str, None]]:
    """The number of each footnote on our own numbers, with the modules that it concerns in order."""
    found: dict[int, dict[str, None]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            for number in cell.notes if column.origin != "published" else ():
                found.setdefault(number, {})[row.module] = None
    return found


def report_command(
    paths: Sequence[Path],
    out: Path,
    choice: Choice | None,
    keys: Mapping[str, Sequence[str]],
    titles: bool,
    sheet: FigureSize,
) -> str:
    """The command that makes the report's page and figures again, in the folder where this one was given.

    Of a folder that is elsewhere it has the name alone: a page that is sent to others tells no path of this machine.
    """
    parts = ["ctxbench", "report", *map(_shown_path, paths), "--out", _shown_path(out)]
    if choice and choice.modules:
        parts += ["--modules", ",".join(choice.modules)]
    for shape in choice.shapes if choice else ():
        parts += ["--shape", shape.replace("x", ",")]
    for name, texts in keys.items():
        parts += [f"--{name}", ",".join(texts)] if texts else []
    parts += ["--titles"] if titles else []
    parts += ["--width", f"{sheet.width:g}"] if sheet.width != PAGE.width else []
    return shlex.join([*parts, *([] if sheet.heading else ["--no-heading"])])


def _shown_path(path: Path) -> str:
    """A path as it is from here; its name where it is not below."""
    full = path.absolute()
    return str(full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else full.name)
