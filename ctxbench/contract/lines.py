"""The contract's results as lines of text for a terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from ctxbench.contract import CheckResult

STYLES = {"passed": "green", "FAILED": "bold red", "note": "yellow", "n/a": "dim"}
WIDTH = 24


def line(result: CheckResult) -> Text:
    """One check: its verdict, its name, the fact; the hint on a line of its own."""
    word = verdict(result)
    text = Text.assemble((f"{word:7}", STYLES[word]), f"{result.name:{WIDTH}}", result.fact)
    if result.hint:
        text.append(f"\n{'':{7 + WIDTH}}hint: {result.hint}", style="italic")
    return text


def verdict(result: CheckResult) -> str:
    """`passed`, `FAILED`, `note` (a failed check that only informs) or `n/a`."""
    if result.outcome == "failed":
        return "FAILED" if result.required else "note"
    return "n/a" if result.outcome == "not applicable" else "passed"


def summary(reference: str, results: Sequence[CheckResult]) -> Text:
    """How many checks ended how, and whether the contract holds."""
    counts = Counter(verdict(result) for result in results)
    tally = ", ".join(f"{counts[word]} {word.lower()}" for word in STYLES if counts[word])
    holds = not any(result.broken for result in results)
    end = "honours the contract" if holds else "does not honour the contract"
    return Text(f"{reference} {end}: {tally}", style="bold green" if holds else "bold red")
