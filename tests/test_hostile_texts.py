"""Texts of a run folder that would command what shows them: none does, in any file of a report or on a terminal."""

import csv
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import Done
from report_data import ENVIRONMENT, add, definition, new_run, record

import ctxbench
from ctxbench.base.texts import all_safe, csv_cell, one_line, safe

Command = Callable[..., Done]
TEXTS = {
    "terminal": "\x1b[31mred\x1b]0;t\x07",
    "direction": "a\u202eb\u2066c",
    "zero": "a\0b\x7f\x9b2J",
    "no character": "a\ufffeb\uffffc",
    "line ends": "a\u2028b\u2029c\x85d\x0be",
    "formula": "=cmd|'/C calc'!A0",
    "sum": "+1+cmd",
    "at": "@SUM(A1)",
    "minus": "-2+3+cmd|' /C calc'!A0",
    "markup": "<script>alert(1)</script>&\"'`|$x$\\",
}
TEXT_FILES = (".html", ".svg", ".md", ".tex", ".csv")
FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,]+ ?[%\w/]*$)")


def obeyed(text: str) -> set[str]:
    """The characters that a terminal obeys, or that XML cannot hold, in a text."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text if c not in "\n\t" and (unicodedata.category(c) in kinds or c in "\ufffe\uffff")}


@pytest.fixture
def received(tmp_path: Path, text: str) -> Path:
    about = {"environment": {**ENVIRONMENT, "driver": None, "cpu": text}, "command": f"ctxbench run {text}"}
    folder = new_run(tmp_path / "run", definition=definition(title=text, published=None), **about)
    for module in ("sa", "linear"):
        add(folder, record(module, title=text, family=text, status="error", message=text))
        add(folder, record(module, shape=(1, 512, 64, 64), title=text, family=text))
    return folder.path


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_report_and_what_is_printed_of_it_obey_nothing(received: Path, command: Command, text: str) -> None:
    out = received.parent / "out"
    report = command("report", received, "--out", out, "--titles", "--columns", "params,macs", "--title", text)
    diff = command("diff", received, received)
    assert (report.returncode, diff.returncode) == (0, 0), report.stderr + diff.stderr
    for printed in (*vars(report).values(), *vars(diff).values(), repr(ctxbench.diff(received, received))):
        assert obeyed(str(printed)) == set()
    files = [path for path in out.rglob("*") if path.suffix in TEXT_FILES]
    assert {path.suffix for path in files} == {*TEXT_FILES}
    for path in files:
        content = path.read_bytes().decode()
        assert obeyed(content) == set(), path
        if path.suffix == ".svg":
            ElementTree.fromstring(content)
        if path.suffix == ".csv":
            cells = [cell for row in csv.reader(content.splitlines()) for cell in row]
            assert [cell for cell in cells if FORMULA.match(cell)] == [], path
        if path.suffix == ".html":
            assert "<script>alert" not in content


def test_a_text_that_nothing_obeys_is_left_as_it_is() -> None:
    for text in ("λ ⁰ é 漢\n\t²", "-3.1 %", "63.4G", "+63.4G", "-", "1,024", "", "a=b"):
        assert (safe(text), csv_cell(text)) == (text, text)
    assert csv_cell(-1.5) == -1.5
    assert csv_cell("=1") == "'=1"
    assert one_line("a\r\nb\x1b") == "a b\\x1b"
    assert all_safe({"a\x1b": ["\x1b", 1, None]}) == {"a\\x1b": ["\\x1b", 1, None]}
