"""Writes what is generated of README.md and docs/: tables, sentences with numbers and figures.

They stand between `<!-- table: NAME -->` and `<!-- /table -->`. NAME is one of `MADE`, or the folder of a committed
run, or `FOLDER#KIND` for another of its tables, KIND being one of `KINDS`. After the folder may stand the name of a
figure of the run's suite, for the tables of its numbers; or `claims`, for the claims of the run's suite and what was
found; or `verdicts`, for a line for each verdict. A picture `figures/REPORT-FIGURE.png` is copied from
`report/REPORT/figures/FIGURE.png`, where `ctxbench report` has written it.
Run: python docs/update.py
"""

import re
import shutil
from functools import cache
from pathlib import Path

from findings import FINDINGS
from headlines import SENTENCES
from lists import LISTS, ROOT, doc_pages, verdict_list
from predictions import PREDICTIONS
from scans import SCANS
from side_by_side import SIDE_BY_SIDE

from ctxbench.plugins.claims.table import claim_table
from ctxbench.plugins.crossover.table import crossover_table
from ctxbench.plugins.networks.table import network_tables
from ctxbench.report.curves import figures_of
from ctxbench.report.panels import Panel, panels_of
from ctxbench.report.run_data import RunData, open_run
from ctxbench.report.tables.curve import curve_tables
from ctxbench.report.tables.suite import comparison_table
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.markdown import render_markdown

BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- /table -->)", re.DOTALL)
PICTURE = re.compile(r"figures/([a-z0-9_]+(?:-static)?)-([a-z0-9-]+)\.png\)")
MADE = {**LISTS, **FINDINGS, **SENTENCES, **PREDICTIONS, **SIDE_BY_SIDE, **SCANS}
KINDS = {"crossover": lambda run: [crossover_table(run)], "network": network_tables}
FIGURES = ROOT / "docs" / "figures"


def pages() -> list[Path]:
    """The files that may hold such blocks."""
    return [ROOT / "README.md", *doc_pages(), ROOT / "results" / "README.md"]


def updated(text: str) -> str:
    """The text with each block's table made anew."""

    def table(block: re.Match[str]) -> str:
        name, _, part = block[2].partition(" ")
        made = MADE[name]() if name in MADE else run_table(name, part)
        return f"{block[1]}{made.strip()}\n{block[3]}"

    return BLOCK.sub(table, text)


def run_table(name: str, part: str) -> str:
    """A table of a committed run: its own, one of KINDS, those of a figure, its claims or the verdicts on them."""
    path, _, kind = name.partition("#")
    folder = RunFolder.open(ROOT / path)
    if kind:
        return "\n".join(map(render_markdown, KINDS[kind](RunData.read(folder))))
    if part == "verdicts":
        return verdict_list(ROOT / path)
    if part == "claims":
        claims = claim_table(open_run(ROOT / path))
        if claims is None:
            raise SystemExit(f"the suite of {path} has no claims")
        return render_markdown(claims)
    if part:
        panels = panels_in(path)
        (figure,) = [each for each in figures_of(panels[0]) if each.name == part]
        return "\n".join(render_markdown(table) for table in curve_tables(panels, figure))
    return render_markdown(comparison_table([folder]))


@cache
def panels_in(folder: str) -> list[Panel]:
    """Panels of a committed run for its figures."""
    return panels_of([open_run(ROOT / folder)])


def pictures() -> dict[Path, Path]:
    """The figures that pages embed, and the files of reports that they are copies of."""
    found = {}
    for page in pages():
        for report, figure in PICTURE.findall(page.read_text(encoding="utf-8")):
            source = ROOT / "docs" / "report" / report / "figures" / f"{figure}.png"
            found[FIGURES / f"{report}-{figure}.png"] = source
    return found


def main() -> None:
    for page in pages():
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
    for picture, source in pictures().items():
        picture.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, picture)
    for old in set(FIGURES.glob("*.png")) - set(pictures()):
        old.unlink()


if __name__ == "__main__":
    main()
