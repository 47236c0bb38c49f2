"""Puts the tables of committed runs into README.md and docs/, between `<!-- table: RUN -->` and `<!-- /table -->`.

Run: python docs/update.py
"""

import re
from pathlib import Path

from ctxbench.report.markdown import render_markdown
from ctxbench.report.tables import comparison_table
from ctxbench.results import RunFolder

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def updated(text: str) -> str:
    """The text with each block's table made anew from the run folder that it names."""

    def table(found: re.Match[str]) -> str:
        made = render_markdown(comparison_table([RunFolder.open(ROOT / found[2])]))
        return f"{found[1]}{made.strip()}\n{found[3]}"

    return BLOCK.sub(table, text)


def pages() -> list[Path]:
    """The files that may hold such blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
