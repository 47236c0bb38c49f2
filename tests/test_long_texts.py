"""A long text of a received file costs time in proportion to its length: a quadratic pattern would not end in hours."""

import random
import re

import pytest

from ctxbench.base import limits
from ctxbench.base.texts import csv_cell
from ctxbench.report.figures.layout import wrapped
from ctxbench.table.markdown import escape

LONG = 10**6


def drawn(seed: int, letters: str) -> str:
    return "".join(random.Random(seed).choices(letters, k=12))


@pytest.mark.parametrize("text", ["-" + "9" * LONG + "!", "=" * LONG, "-1 " + "a" * LONG + "!"])
def test_a_long_cell(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["9" * LONG + "!", "9." + "9" * LONG + "!", "." + "9" * LONG + "!"])
def test_a_long_number(text: str) -> None:
    for read in (limits.decimal, limits.integer):
        with pytest.raises(ValueError, match=r"is no (number|integer)"):
            read(text)


def test_a_decimal_may_lack_one_side_of_its_point() -> None:
    assert [*map(limits.decimal, ("2", "2.", ".5", "-0.5e-1", " 1e3 "))] == [2, 2, 0.5, -0.05, 1000]
    for text in (".", "1.2.3", "e3", "inf", "1_0", ""):
        with pytest.raises(ValueError, match="is no number"):
            limits.decimal(text)


@pytest.mark.parametrize("text", ["[" * LONG, "]" * LONG, "[a" * LONG, "[]" * (LONG // 2), "[" * LONG + "](x)"])
def test_a_long_text_in_markdown(text: str) -> None:
    assert escape(text).replace("\\", "") == text


def test_brackets_are_escaped_where_they_could_open_a_link() -> None:
    for seed in range(2000):
        text = drawn(seed, "[](: a")
        plain = " ".join(text.split())
        assert escape(text) == re.sub(r"\[(?=[^\]]*\][(\[:])", r"\\[", plain), text


def test_numbers_and_formulas_are_told_apart() -> None:
    number = re.compile(r"[+-]?([\d.,]+ ?[%\w/]*)?")
    for seed in range(2000):
        text = drawn(seed, "-+=1a. %")[: seed % 12 + 1]
        formula = text[0] in "=+-@" and not number.fullmatch(text)
        assert csv_cell(text) == ("'" * formula + text), text


def test_lines_break_outside_square_brackets() -> None:
    breaks = re.compile(r"(?:(?<=[ :_/-])|(?=[(\[]))(?![^\[]*\])")
    for seed in range(1000):
        text = drawn(seed, "[](: a_")
        pieces = [each for each in breaks.split(text) if each]
        assert wrapped(text, 1000) == text.rstrip()
        lines = wrapped(text, 3).split("\n")
        assert max(map(len, lines)) <= 3
        assert "".join("".join(lines).split()) == "".join("".join(pieces).split())
    assert len(wrapped("[a" * 50_000, 20)) > 50_000
