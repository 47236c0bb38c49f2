"""The contract's results as lines of text for a terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from ctxbench.contract import CheckResult

STYLES = {"passed": "green", "FAILED": "bold red", "note": "yellow", "n/a": "dim"}
WIDTH = 24


def line(result: CheckResult) -> Text:
    """One check: its verdict, its name and the fact; the hint is on a second line."""
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
    """Whether the module meets the contract, and the number of checks for each verdict."""
    counts = Counter(verdict(result) for result in results)
    tally = ", ".join(f"{counts[word]} {word.lower()}" for word in STYLES if counts[word])
    is_met = not any(result.broken for result in results)
    end = "meets the contract" if is_met else "does not meet the contract"
    return Text(f"{reference} {end}: {tally}", style="bold green" if is_met else "bold red")
