"""Texts for people: none from a file, a module or a run folder commands what shows it."""

import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

# Control, format (which turn the direction of a text) and surrogate characters; ends of lines and of paragraphs.
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
# No character at all; XML has no place for them.
_NONE = "\ufffe\uffff"
# How a formula begins in a spreadsheet; a signed number, with its unit, is none.
_FORMULA, _NUMBER = re.compile(r"[=+\-@\t\r]"), re.compile(r"[+-]?([\d.,]++ ?[%\w/]*)?")


def safe(text: str) -> str:
    """The text with each character escaped that a terminal would obey or XML cannot hold, but for line feeds and tabs.

    Every text from outside passes here on its way to a terminal, a table, a page, a figure or a file for CI.
    """
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character in _NONE or (unicodedata.category(character) in _OBEYED and character not in "\n\t")
        else character
        for character in text
    )


def all_safe(value: Any) -> Any:
    """A value as JSON has it, with each text in it safe."""
    if isinstance(value, dict):
        return {safe(key) if isinstance(key, str) else key: all_safe(each) for key, each in value.items()}
    if isinstance(value, list):
        return [all_safe(each) for each in value]
    return safe(value) if isinstance(value, str) else value


def one_line(text: str) -> str:
    """The safe text in one line."""
    return safe(" ".join(text.split()))


def csv_cell(value: Any) -> Any:
    """A cell of a CSV for people: of a text that a spreadsheet would compute, an apostrophe and the text."""
    if not isinstance(value, str):
        return value
    return f"'{safe(value)}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else safe(value)


def counted(count: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(phrases: Sequence[str], most: int = sys.maxsize) -> str:
    """`a, b and c`; of more than `most`, the first and how many others: `a, b and 5 more`; "" without phrases."""
    if len(phrases) > most:
        phrases = [*phrases[:most], f"{len(phrases) - most} more"]
    return " and ".join(filter(None, (", ".join(phrases[:-1]), *phrases[-1:])))
