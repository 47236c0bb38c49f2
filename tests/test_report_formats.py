"""Tables in each format: whole, escaped, and in LaTeX that compiles."""

import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from report_data import add, cell, new_run, record, table3_run
from rich.console import Console
from test_report_tables import table_of

from ctxbench.table.html import render_html
from ctxbench.table.latex import NOTES, render_latex, render_tabular
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import Table
from ctxbench.table.terminal import TerminalTable

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_table_fits_its_width(tmp_path: Path, width: int) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    console = Console(width=width, file=io.StringIO())
    console.print(TerminalTable(table))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("ham_nmf ")]
    assert len(rows) == (5 if width == 80 else 3)
    assert not any(line.startswith(" ") and "ham" in line for line in lines)
    numbers = " ".join(rows)
    for column in ("params", "macs_published", "memory_train", "latency_infer"):
        assert cell(table, "ham_nmf", column).text in numbers


def test_every_format_holds_every_number(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    texts = {found.text for row in table.rows for found in row.cells if found.text}
    markdown, html = render_markdown(table).replace(r"\_", "_"), render_html(table)
    latex = render_latex(table).replace("{[}", "[").replace("{]}", "]").replace(r"\_", "_")
    for text in texts:
        assert text in markdown
        assert text in html
        assert text in latex
    assert html.count("<tr") == len(table.rows) + 2
    for number in range(1, len(table.notes) + 1):
        assert f"<sup>{number}</sup>" in markdown
        assert f'id="table-note-{number}"' in html


def test_csv_has_raw_numbers_for_every_row(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    data = pd.read_csv(io.StringIO(table.csv))
    row = data[data["module"] == "da"].iloc[0]
    assert row["macs"] == 245_920_432_128
    assert row["macs_ratio"] == pytest.approx(245.920432128 / 79.5)
    assert data["status"].tolist() == ["oom", "ok", "ok", "ok"]


HOSTILE = "<script>alert(1)</script>"
NASTY = r"a|b*c_d`e$f%g&h#i{j}k~l^m\n[x](y) é – 漢"  # noqa: RUF001  # a dash beyond ASCII is the point


@pytest.fixture
def hostile(tmp_path: Path) -> Table:
    folder = new_run(tmp_path / "run")
    add(folder, record(HOSTILE, title=HOSTILE, family=HOSTILE, status="error", message=f"{HOSTILE} {NASTY}"))
    add(folder, record("nasty", title=NASTY))
    return table_of(folder.path)


def test_text_from_outside_is_escaped(hostile: Table) -> None:
    assert "<script" not in render_html(hostile)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in render_html(hostile)
    markdown = render_markdown(hostile)
    assert "<script" not in markdown
    assert r"a\|b\*c\_d\`e$f%g&amp;h#i{j}k\~l^m" in markdown
    assert r"\[x](y)" in markdown


def has_latex() -> bool:
    """Return whether pdflatex and the package threeparttable are there."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return False
    return subprocess.run(["kpsewhich", "threeparttable.sty"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_latex(), reason="no LaTeX: apt-get install texlive-latex-recommended texlive-latex-extra")
@pytest.mark.parametrize("notes", NOTES)
def test_latex_compiles(tmp_path: Path, hostile: Table, notes: str) -> None:
    plain = table_of(table3_run(tmp_path / "plain", failed=["sa"]))
    for table, fits in ((hostile, False), (plain, True)):
        text = render_latex(table, notes=notes)
        packages = re.findall(r"% needs (\\usepackage\{.*\})", text)
        body = packages[0] + r"\begin{document}" + text + r"\end{document}"
        (tmp_path / "t.tex").write_text(r"\documentclass{article}" + body, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert not (fits and "Overfull" in done.stdout)


def test_notes_of_latex_stand_below_in_threeparttable_or_nowhere(tmp_path: Path) -> None:
    table = table_of(table3_run(tmp_path / "run", failed=["sa"]))
    count = len(table.notes)
    assert count > 1
    texts = {notes: render_latex(table, notes=notes) for notes in NOTES}
    below, short, three, none = (texts[notes] for notes in ("below", "short", "threeparttable", "none"))
    assert [text.count(r"\begin{minipage}") for text in (below, short, three, none)] == [1, 1, 0, 0]
    (paragraph,) = re.findall(r"\\raggedright (.*)\\end\{minipage\}", short)
    assert (paragraph.count(r"\textsuperscript{"), r"\par" in paragraph) == (count, False)
    assert len(paragraph) < len(below.partition(r"\raggedright ")[2])
    alone = render_tabular(table)
    floats = len(table.blocks())
    words = (r"\begin{tabular}", r"{\footnotesize", r"\caption", r"\begin{table}")
    assert [alone.count(word) for word in words] == [floats, floats, 0, 0]
    assert alone.count("wider than a column") == below.count(r"\begin{table*}") == floats - alone.count("fits a column")
    assert [three.count(rf"\begin{{{name}}}") for name in ("threeparttable", "tablenotes")] == [floats, 1]
    assert re.findall(r"\\item\[(\d+)\]", three) == [str(number) for number in range(1, count + 1)]
    assert three.count(r"\item ") == len(table.caption)
    marks = sum(bool(cell.notes) for row in table.rows for cell in row.cells)
    marks += (len(table.blocks()) - 1) * sum(bool(row.cells[0].notes) for row in table.rows)  # a label in each part
    assert three.count(r"\tnote{") == marks
    assert below.count(r"\textsuperscript{") == marks + count
    assert "superscript" not in none + three
    assert r"\tnote" not in none
