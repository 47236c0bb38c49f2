"""The contract's results as lines of text for a terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from ctxbench.plugins.verify.contract import CheckResult, judged

STYLES = {"passed": "green", "FAILED": "bold red", "undecided": "bold yellow", "note": "yellow", "n/a": "dim"}
VERDICT, NAME = 10, 24
SUMMARIES = {
    "met": ("{} meets the contract", "bold green"),
    "broken": ("{} does not meet the contract", "bold red"),
    "not decided": ("it is not decided whether {} meets the contract", "bold yellow"),
}


def line(result: CheckResult) -> Text:
    """One check: its verdict, its name and the fact; the hint is on a second line."""
    word = verdict(result)
    text = Text.assemble((f"{word:{VERDICT}}", STYLES[word]), f"{result.name:{NAME}}", result.fact)
    if result.hint:
        text.append(f"\n{'':{VERDICT + NAME}}hint: {result.hint}", style="italic")
    return text


def verdict(result: CheckResult) -> str:
    """`passed`, `FAILED`, `note` (a failed check that only informs), `undecided` or `n/a`."""
    if result.outcome == "failed":
        return "FAILED" if result.required else "note"
    return {"not applicable": "n/a", "not decided": "undecided"}.get(result.outcome, result.outcome)


def summary(reference: str, results: Sequence[CheckResult]) -> Text:
    """Verdict on the module's contract, and the number of checks for each verdict."""
    counts = Counter(verdict(result) for result in results)
    tally = ", ".join(f"{counts[word]} {word.lower()}" for word in STYLES if counts[word])
    sentence, style = SUMMARIES[judged(results)]
    return Text(f"{sentence.format(reference)}: {tally}", style=style)
