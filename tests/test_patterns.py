"""No pattern of what is installed takes time that grows faster than its text: texts are made to that end."""

import ast
import itertools
import re
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
INSTALLED = ("ctxbench", "modules", "networks", "suites", "published", "report")
METHODS = "search|match|fullmatch|split|findall|finditer|sub"
# A linear pattern takes about a millisecond for so many letters, a quadratic one some hundred.
LETTERS, QUICK_S = (4_000, 20_000), 0.03
USUAL = (*" a0_-.,\"'[(<:=\t\n", "-0", "a ", "0 ", "[a", "a.")
ALL = ["a", *map(chr, range(32, 127)), "\n"]
PARSER, COMPILER, NAMES = (import_module(f"re._{name}") for name in ("parser", "compiler", "constants"))


def patterns(path: Path) -> Iterator[tuple[int, str, int, set[str]]]:
    """Of a file the line of each pattern, its text, its flags, and the methods by which the file uses it."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and re.fullmatch(rf"re\.(compile|{METHODS})", ast.unparse(node.func))):
            continue
        text = text_of(node.args[0])
        if text is not None:
            said = " ".join(map(ast.unparse, (*node.args[1:], *node.keywords)))
            flags = re.compile("", sum({getattr(re, each) for each in re.findall(r"\bre\.([A-Z]+)\b", said)})).flags
            name = ast.unparse(node.func).removeprefix("re.")
            assigned = "|".join(re.findall(r"\w+", source.splitlines()[node.lineno - 1].partition("=")[0]))
            used = {name} if name != "compile" else {*re.findall(rf"\b(?:{assigned})\.({METHODS})\(", source)}
            yield node.lineno, text, flags & ~re.UNICODE, used or {"search"}


def text_of(node: ast.expr) -> str | None:
    """The text of a pattern, a letter for each thing that is filled in; None of one that has a name."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(text)):
            return text.decode()
    return None


def example(items: Any, before: str, pumps: set[tuple[str, str]]) -> str:
    """A text that parsed items match; to `pumps` comes each part that may repeat, after what stands `before` it."""
    text = ""
    for operator, about in items:
        name, here = str(operator), before + text
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            one = PARSER.SubPattern(PARSER.State(), [(operator, about)])
            pattern = COMPILER.compile(one)
            text += next(each for each in ALL if pattern.fullmatch(each))
        elif name.endswith("REPEAT"):
            least, most, body = about
            part = example(body, here, pumps)
            pumps |= {(here, part), ("", here + part)} if most is NAMES.MAXREPEAT else set()
            text += part * max(least, 1)
        elif name == "BRANCH":
            text += max((example(each, here, pumps) for each in about[1]), key=len)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            text += example(about[-1] if name == "SUBPATTERN" else about, here, pumps)
        elif name.startswith("ASSERT"):
            example(about[1], here, pumps)
    return text


def seconds(pattern: re.Pattern[str], method: str, text: str) -> float:
    """Processor time of the quicker of two calls, of the first where that is quick."""
    taken: list[float] = []
    while len(taken) < 2 and not (taken and taken[0] <= QUICK_S):
        begin = time.process_time()
        found = getattr(pattern, method)(*[""] * (method == "sub"), text)
        list(found) if method == "finditer" else None
        taken.append(time.process_time() - begin)
    return min(taken)


def slow(text: str, flags: int, methods: set[str]) -> Iterator[tuple[str, str, str, str]]:
    """Each method, and begin, part and end of a text, for which twice the length takes more than thrice the time."""
    pumps = {("", each) for each in USUAL}
    whole = example(PARSER.parse(text, flags), "", pumps)
    pumps |= {("", each) for each in (whole, *whole) if each}
    pattern = re.compile(text, flags)
    for method in methods:
        for before, part in pumps:
            for end, letters in itertools.product(("", "\0"), LETTERS):
                once, twice = (before + part * (n // len(part)) + end for n in (letters, 2 * letters))
                if (s := seconds(pattern, method, once)) > QUICK_S and seconds(pattern, method, twice) > 3 * s:
                    yield method, before, part, end
                    break


@pytest.mark.parametrize("root", INSTALLED)
def test_a_pattern_takes_time_in_proportion_to_its_text(root: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": [*slow(text, flags, methods)]
        for path in sorted((ROOT / root).rglob("*.py"))
        for line, text, flags, methods in patterns(path)
    }
    assert {place: texts for place, texts in found.items() if texts} == {}
    assert root != "ctxbench" or len(found) > 20


@pytest.mark.parametrize(
    ("text", "method"),
    [(r"\s*([0-9]+)\s*([smh]?)\s*", "fullmatch"), (r"\w*[a-z]_\w+", "search"), (r"([0-9]+)\w*", "fullmatch")],
)
def test_a_quadratic_pattern_is_found(text: str, method: str) -> None:
    assert next(slow(text, 0, {method}), None)
