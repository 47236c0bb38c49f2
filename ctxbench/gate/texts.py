"""What every form of a finding shares: its texts, its numbers as people read them, the order and names of rows."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable

from ctxbench.gate.finding import ExactChange, Finding
from ctxbench.gate.rules import ExitCode, RowVerdict
from ctxbench.gate.self_test import SelfTest
from ctxbench.results import MODES

# What a row came to, the worst first, and how the terminal shows it.
STYLES = {
    "broken": "bold red",
    "regressed": "bold red",
    "not compared": "bold red",
    "inconclusive": "bold yellow",
    "ok": "green",
}
HEADLINES = {
    ExitCode.OK: "no regression",
    ExitCode.REGRESSED: "regressed",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.BROKEN: "newly broken or missing",
    ExitCode.NOTHING_COMPARED: "nothing was compared",
}
ADVISORY = "Advisory: latencies decide nothing here; exact quantities and what is newly broken or not compared do."
PLURAL = {"pair": "pairs", "process": "processes"}
# From here on a percentage is written as a power of ten.
LARGE = 1e5


def summary(finding: Finding) -> str:
    """The finding in one line: how many rows came to what, what changed exactly, and the exit code."""
    counts = word_counts(finding)
    rows = ", ".join(f"{counts[word]} {word}" for word in STYLES if counts[word]) or "none measured"
    parts = [f"{number(len(finding.rows), 'row')}: {rows}."]
    if finding.compared or not finding.rows:
        exact = f"{len(finding.exact)} changed" if finding.exact else "none changed"
        worse = sum(change.worse for change in finding.exact)
        exact += f" ({worse} for the worse)" if worse else ""
        parts.append(f"{finding.compared:,} exact quantities: {exact}.")
    return " ".join([*parts, f"Exit code {int(finding.exit_code)}: {exit_name(finding.exit_code)}."])


def headline(finding: Finding) -> str:
    """The whole verdict in a few words."""
    if finding.advisory:
        return "advisory" if finding.exit_code == ExitCode.OK else f"advisory, {HEADLINES[finding.exit_code]}"
    doubtful = word_counts(finding)["inconclusive"]
    if finding.exit_code == ExitCode.OK and doubtful:
        return f"no regression found, {doubtful} of {number(len(finding.rows), 'row')} inconclusive"
    return HEADLINES[finding.exit_code]


def self_test_counts(tested: SelfTest) -> dict[str, int]:
    """How many unchanged rows were measured, how they came out, how many were slowed down and found."""
    verdicts = {row.row: row.verdict for row in tested.finding.rows}
    slowed = [verdicts[spread.row] for spread in tested.spreads if spread.injected]
    unchanged = [verdicts[spread.row] for spread in tested.spreads if not spread.injected]
    return {
        "unchanged": len(unchanged) - unchanged.count(None),
        "false_alarms": tested.false_alarms,
        "undecided": unchanged.count("inconclusive"),
        "injected": len(slowed),
        "found": slowed.count("regressed"),
    }


def self_test_summary(tested: SelfTest) -> list[str]:
    """What a self-test says about the machine, in sentences."""
    counts = self_test_counts(tested)
    rows = number(counts["unchanged"], "row")
    undecided = f", {counts['undecided']} undecided" if counts["undecided"] else ""
    lines = [f"{counts['false_alarms']} of {rows} called regressed though nothing had changed{undecided}."]
    if counts["injected"]:
        lines.append(f"{counts['found']} of {number(counts['injected'], 'injected slowdown')} found.")
    spreads = [spread.deviation for spread in tested.spreads if spread.deviation is not None]
    visible = [spread.visible for spread in tested.spreads if spread.visible is not None]
    if spreads:
        middle, largest = percent(statistics.median(spreads)), percent(max(spreads))
        lines.append(f"Spread between pairs: median {middle}, largest {largest}.")
    if visible:
        middle, largest = percent(statistics.median(visible)), percent(max(visible))
        found = "Smallest slowdown that 95 of 100 checks with this budget find"
        lines.append(f"{found}: median {middle}, largest {largest}.")
    elif spreads:
        lines.append("The budget is too short to find a slowdown of any size.")
    unknown = len(tested.spreads) - len(spreads)
    if unknown:
        lines.append(f"Nothing is known of {number(unknown, 'row')} with fewer than two pairs.")
    return lines


def title_of(finding: Finding) -> str:
    return clean(finding.title) + (" (advisory)" if finding.advisory else "")


def remarks(finding: Finding) -> list[str]:
    """What is to be read beside the verdicts."""
    lines = [ADVISORY] if finding.advisory else []
    lines += [f"Note: {clean(note)}" for note in finding.notes]
    measured = f"Margin {100 * finding.margin:g} %, measured in {finding.elapsed_s:.0f} s."
    return [*lines, f"{measured} Conditions: {clean(finding.conditions)}"]


def exit_name(code: ExitCode) -> str:
    """`ok`, `regressed`, `inconclusive`, `broken` or `nothing compared`."""
    return code.name.lower().replace("_", " ")


def word_of(row: RowVerdict) -> str:
    """What a row came to: its verdict, or its status if it was not measured."""
    return row.verdict or row.status


def loud(word: str) -> str:
    """Capitals for what must be seen without colour."""
    return word.upper() if "red" in STYLES[word] else word


def label_of(finding: Finding, name: str) -> str:
    """The short name of a row or a case."""
    return clean(finding.labels.get(name, name))


def split_mode(text: str) -> tuple[str, str]:
    """A row or its label as case and mode; the mode is empty where there is none."""
    case, _, mode = text.rpartition(" ")
    return (case, mode) if case and mode in MODES else (text, "")


def clean(text: str) -> str:
    """One line without the control, format and surrogate characters that a terminal, XML or UTF-8 cannot take."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())


def change_cells(row: RowVerdict) -> tuple[str, str]:
    """A row's change and interval, to two digits of the interval's half width (GUM, 7.2.6); a dash if unknown."""
    change, low, high = (100 * value for value in (row.change, row.low, row.high))
    if not math.isfinite(low) or not math.isfinite(high):
        return (f"{signed(change, 1)} %" if math.isfinite(change) else "-"), "-"
    half = (high - low) / 2
    decimals = min(max(1 - math.floor(math.log10(half)), 0), 2) if half > 0 else 2
    return f"{signed(change, decimals)} %", f"[{signed(low, decimals)}, {signed(high, decimals)}]"


def story(finding: Finding, row: RowVerdict) -> str:
    """The change with its interval if there is one, and the reason."""
    change, interval = change_cells(row)
    measured = f"{change} {interval} in {row.pairs:,} {PLURAL[finding.evidence]}. " if interval != "-" else ""
    return measured + clean(row.reason)


def percent(share: float | None) -> str:
    """A share of one as a percentage without a sign; a dash if unknown."""
    return "-" if share is None else f"{signed(100 * share, 1).removeprefix('+')} %"


def exact_cells(change: ExactChange) -> tuple[str, str, str, str]:
    """The quantity with its unit, both values, and the difference."""
    name = clean(change.quantity).replace("_", " ")
    quantity = f"{name.removesuffix(' bytes')} (bytes)" if name.endswith(" bytes") else name
    before, after = ("-" if value is None else f"{value:,}" for value in (change.baseline, change.candidate))
    difference = difference_of(change)
    if difference is None:
        return quantity, before, after, "no longer known" if change.candidate is None else "not known before"
    percent = round(100 * difference / change.baseline, 1) if change.baseline else 0
    return quantity, before, after, f"{difference:+,}" + (f" ({signed(percent, 1)} %)" if percent else "")


def exact_text(change: ExactChange) -> str:
    quantity, before, after, difference = exact_cells(change)
    return f"{quantity}: {before} -> {after}, {difference}"


def difference_of(change: ExactChange) -> int | None:
    if change.baseline is None or change.candidate is None:
        return None
    return change.candidate - change.baseline


def worst_first(rows: Iterable[RowVerdict]) -> list[RowVerdict]:
    order = list(STYLES)
    return sorted(rows, key=lambda row: order.index(word_of(row)))


def word_counts(finding: Finding) -> Counter[str]:
    return Counter(map(word_of, finding.rows))


def number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def signed(value: float, decimals: int) -> str:
    if abs(value) >= LARGE:
        return f"{value:+.0e}"
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"  # -0.0 + 0.0 is 0.0
