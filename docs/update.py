"""Writes what is generated of README.md and docs/: tables, sentences with numbers and figures.

They stand between `<!-- table: WHAT -->` and `<!-- /table -->`. WHAT is a name of sentences.toml; or that of a function
of `FILES`, with `-` for `_`, and its arguments; or the folder of a committed run, for its own table. Behind the folder
may stand

- `verdicts`, for a line for each verdict on the claims of its suite;
- `without` and the keys of columns that its own table leaves out.

A picture `figures/REPORT-FIGURE.png` is copied from `report/REPORT/figures/FIGURE.png`, where `ctxbench report` has
written it. Run: python docs/update.py [PAGE ...]; with pages, these alone are written, and no picture is copied.
"""

import re
import shutil
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import api
import blocks
import deployment
import findings
import gpu_runs
import lists
import pictures
import predictions
import scans
import sentences
import twins
from lists import ROOT, doc_pages, verdict_list

from ctxbench.report.run_data import open_run
from ctxbench.report.tables.suite import suite_table
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Cell, ConventionLine, Footnotes, Table

BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- /table -->)", re.DOTALL)
PICTURE = re.compile(r"figures/([a-z0-9_]+(?:-static)?)-([a-z0-9-]+)\.png\)")
FILES = (api, deployment, findings, gpu_runs, lists, predictions, scans, twins)
FIGURES = ROOT / "docs" / "figures"


def pages() -> list[Path]:
    """The files that may hold such blocks."""
    return [ROOT / "README.md", *doc_pages(), ROOT / "results" / "README.md"]


def updated(text: str) -> str:
    """The text of a page with each block's table made anew."""
    seen: set[str] = set()
    return BLOCK.sub(lambda block: f"{block[1]}{once(made(*block[2].split()).strip(), seen)}\n{block[3]}", text)


def once(text: str, seen: set[str]) -> str:
    """The text without the lines, outside of tables, that an earlier block of the page has: a caption stands once."""
    kept = []
    for line in text.splitlines():
        plain = line.removesuffix("<br>").removeprefix("here: ")
        if line.startswith(("|", "```")) or not plain or plain not in seen:
            kept.append(line)
        seen.add(plain)
    return "\n".join(kept).strip().removesuffix("<br>")


def made(name: str, *words: str) -> str:
    """A table of a run, a sentence, or what a function of FILES makes."""
    if "/" in name:
        return run_table(name, *words)
    key = name.replace("-", "_")
    if name in sentences.TEXTS["sentences"]:
        return sentences.block(name)
    if name == "finding":
        return f"**{sentences.finding(*words)}**"
    found = next((vars(file)[key] for file in FILES if key in vars(file)), None)
    if found is None:
        raise SystemExit(
            f"a page has a block {name!r}, which is neither in sentences.toml nor a function {key} of docs/"
        )
    return str(found(*words))


def run_table(folder: str, part: str = "", which: str = "") -> str:
    """The table of a committed run, or the verdicts on its claims."""
    if part == "verdicts":
        return verdict_list(ROOT / folder)
    if part not in ("", "without"):
        raise SystemExit(f"a page asks {part!r} of {folder}")
    table = suite_table(open_run(ROOT / folder))
    return render_markdown(short_caption(without(table, which.split(","))))


def short_caption(table: Table) -> Table:
    """The table with the first clauses of the conventions of what it shows."""
    shown = " ".join(column.name for column in table.columns)
    lines = [line for line in table.caption if not isinstance(line, ConventionLine) or line.partition(":")[0] in shown]
    return replace(table, caption=tuple(map(_first_clause, lines)))


def without(table: Table, keys: Collection[str]) -> Table:
    """The table without the columns of these keys, and with the notes alone of the cells that are left."""
    kept = [i for i, column in enumerate(table.columns) if column.key not in keys]
    notes = Footnotes()

    def numbered(cell: Cell) -> Cell:
        return replace(cell, notes=tuple(notes.number(table.notes[number - 1]) for number in cell.notes))

    rows = tuple(replace(row, cells=tuple(numbered(row.cells[i]) for i in kept)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows, notes=notes.texts)


def _first_clause(line: str) -> str:
    """A line of a caption; of a convention, which docs/method.md and the suite's page have whole, the first clause."""
    return f"{line.partition('; ')[0].removesuffix('.')}." if isinstance(line, ConventionLine) else line


def embedded() -> dict[Path, Path]:
    """The figures that pages embed, and the files of reports that they are copies of."""
    found = {}
    for page in pages():
        for report, figure in PICTURE.findall(page.read_text(encoding="utf-8")):
            source = ROOT / "docs" / "report" / report / "figures" / f"{figure}.png"
            found[FIGURES / f"{report}-{figure}.png"] = source
    return found


def copy_pictures() -> None:
    for picture, source in embedded().items():
        picture.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, picture)
    for old in set(FIGURES.glob("*.png")) - set(embedded()):
        old.unlink()


def write(files: Iterable[Path]) -> None:
    for page in files:
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    named = [Path(each).resolve() for each in sys.argv[1:]]
    write(named or pages())
    if not named:
        blocks.write()
        copy_pictures()
        pictures.peaks()
