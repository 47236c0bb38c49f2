"""Parts shared by every form of a result: its texts, its numbers as people read them, the order and names of rows."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ctxbench.base.number import fixed, significant
from ctxbench.base.statistics import rate_at_most
from ctxbench.base.texts import counted, listed, one_line
from ctxbench.plugins.check.result import ExactChange, ExitCode, GateResult
from ctxbench.plugins.check.rows import RowKey, RowVerdict
from ctxbench.plugins.check.self_test import SelfTest
from ctxbench.table.table import Tone

# What a row came to, the worst first, and how good that is.
TONES: dict[str, Tone] = {
    "broken": "bad",
    "regressed": "bad",
    "not compared": "bad",
    "inconclusive": "doubtful",
    "predicted": "doubtful",
    "ok": "good",
    "ok (new)": "good",
    "ok (repaired)": "good",
}
HEADLINES = {
    ExitCode.OK: "no regression",
    ExitCode.REGRESSED: "regressed",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.BROKEN: "newly broken or missing",
    ExitCode.NOTHING_COMPARED: "nothing was compared",
    ExitCode.CHANGED: "outputs changed",
    ExitCode.CANNOT_TELL: "cannot tell",
}
ADVISORY = (
    "Advisory: latencies are shown but do not decide. Exact quantities do, and rows that are broken or not compared."
)
PLURAL = {"pair": "pairs", "process": "processes"}


def summary(result: GateResult) -> str:
    """The result in one line: how many rows came to what, what changed exactly, and the exit code."""
    counts = word_counts(result)
    rows = ", ".join(f"{counts[word]} {word}" for word in TONES if counts[word]) or "none measured"
    parts = [f"{counted(len(result.rows), 'row')}: {rows}."]
    if result.compared or not result.rows:
        exact = f"{len(result.exact)} changed" if result.exact else "none changed"
        worse = sum(change.worse for change in result.exact)
        exact += f" ({worse} worse)" if worse else ""
        parts.append(f"{result.compared:,} exact quantities: {exact}.")
    if result.outputs:
        found = Counter(each.verdict for each in result.outputs)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in found.items())
        parts.append(f"Outputs and gradients of {counted(len(result.outputs), 'case')}: {verdicts}.")
    code = result.exit_code
    name = "no time compared" if code == ExitCode.NOTHING_COMPARED and result.compared else exit_name(code)
    return " ".join([*parts, f"Exit code {int(code)}: {name}."])


def headline(result: GateResult) -> str:
    """The whole verdict in a few words."""
    if result.exit_code == ExitCode.OK and result.rows and all(row.status == "not compared" for row in result.rows):
        return "no exact quantity is worse, no latency was compared"
    if result.advisory:
        return "advisory" if result.exit_code == ExitCode.OK else f"advisory, {HEADLINES[result.exit_code]}"
    doubtful = word_counts(result)["inconclusive"]
    if result.exit_code == ExitCode.OK and doubtful:
        return f"no regression found, {doubtful} of {counted(len(result.rows), 'row')} inconclusive"
    if result.exit_code == ExitCode.OK and any(each.verdict == "changed" for each in result.outputs):
        return "no regression, other outputs"
    return HEADLINES[result.exit_code]


def self_test_counts(tested: SelfTest) -> dict[str, int]:
    """Counts of unchanged rows by outcome, of slowed rows, and of slowed rows found."""
    verdicts = {row.row: row.verdict for row in tested.result.rows}
    slowed = [verdicts[spread.row] for spread in tested.spreads if spread.injected]
    unchanged = [verdicts[spread.row] for spread in tested.spreads if not spread.injected]
    return {
        "unchanged": len(unchanged) - unchanged.count(None),
        "false_alarms": unchanged.count("regressed"),
        "undecided": unchanged.count("inconclusive"),
        "injected": len(slowed),
        "found": slowed.count("regressed"),
    }


def self_test_summary(tested: SelfTest) -> list[str]:
    """Summary of a self-test of the machine, in sentences."""
    counts = self_test_counts(tested)
    rows = counted(counts["unchanged"], "unchanged row")
    undecided = f", {counts['undecided']} inconclusive" if counts["undecided"] else ""
    alarms = f"{counts['false_alarms']} of {rows} called regressed{undecided}"
    bound = percent(rate_at_most(counts["false_alarms"], counts["unchanged"]))
    lines = [f"{alarms}. If the rows are independent, the rate is at most {bound}, with 95 % confidence."]
    if counts["injected"]:
        lines.append(f"{counts['found']} of {counted(counts['injected'], 'injected slowdown')} found.")
    spreads = [spread.deviation for spread in tested.spreads if spread.deviation is not None]
    visible = [spread.visible for spread in tested.spreads if spread.visible is not None]
    if spreads:
        middle, largest = percent(statistics.median(spreads)), percent(max(spreads))
        lines.append(f"Spread between pairs: median {middle}, largest {largest}.")
    if visible:
        middle, largest = percent(statistics.median(visible)), percent(max(visible))
        smallest = "Smallest slowdown that 95 of 100 checks with this budget find"
        lines.append(f"{smallest}: median {middle}, largest {largest}.")
    elif spreads:
        lines.append("The budget is too short to find a slowdown of any size.")
    unknown = len(tested.spreads) - len(spreads)
    if unknown:
        lines.append(f"The spread of {counted(unknown, 'row')} with fewer than two pairs is not known.")
    return lines


def title_of(result: GateResult) -> str:
    return one_line(result.title) + (" (advisory)" if result.advisory else "")


def remarks(result: GateResult) -> list[str]:
    """Remarks beside the verdicts."""
    lines = [ADVISORY] if result.advisory else []
    lines += [*output_texts(result), *growth_texts(result)]
    lines += [f"Note: {one_line(note)}" for note in result.notes]
    measured = f"Margin {100 * result.margin:g} %, measured in {result.elapsed_s:.0f} s{_beyond(result)}."
    return [*lines, f"{measured} Conditions: {one_line(result.conditions)}"]


def _beyond(result: GateResult) -> str:
    """The seconds of each stage of a check that took longer than its budget; else empty."""
    if result.elapsed_s <= result.budget_s:
        return ""
    parts = listed([f"{stage} took {seconds:.0f} s" for stage, seconds in result.spent.items() if seconds >= 1])
    return f" of a budget of {result.budget_s:.0f} s" + f": {parts}" * bool(parts)


def exit_name(code: ExitCode) -> str:
    """`ok`, `regressed`, `inconclusive`, `broken` or `nothing compared`."""
    return code.name.lower().replace("_", " ")


def word_of(row: RowVerdict) -> str:
    """Outcome of a row: its verdict, or its status if it was not measured."""
    return row.verdict or row.status


def loud(word: str) -> str:
    """Capitals for what must be seen without colour."""
    return word.upper() if TONES[word] == "bad" else word


def label_of(result: GateResult, row: RowKey) -> str:
    """The short name of a row or a whole case, as it came."""
    return str(replace(row, case=result.labels.get(row.case, row.case)))


def case_label(result: GateResult, case: str) -> str:
    return one_line(label_of(result, RowKey(case)))


def row_label(result: GateResult, row: RowKey) -> str:
    return one_line(label_of(result, row))


def change_cells(row: RowVerdict) -> tuple[str, str]:
    """A row's change in percent, and its interval; a dash or words if unknown."""
    if not math.isfinite(row.change.value):
        return "-", "-"
    change, interval = row.change.over(0.01).texts(sign="+")
    return f"{change} %", interval or ("not known yet" if row.verdict == "inconclusive" else "-")


def explanation(result: GateResult, row: RowVerdict) -> str:
    """The change with its interval, and the reason; of a row with one of both alone, the reason."""
    change, interval = change_cells(row)
    measured = f"{change} {interval} in {row.replicates:,} {PLURAL[result.evidence]}. "
    return measured * row.change.has_interval + one_line(row.reason)


def percent(share: float | None) -> str:
    """A share of one as a percentage without a sign; a dash if unknown."""
    return "-" if share is None else f"{fixed(100 * share, 1)} %"


def exact_cells(change: ExactChange) -> tuple[str, str, str, str]:
    """The quantity with its unit, both values, and the difference."""
    name = one_line(change.quantity).replace("_", " ")
    quantity = f"{name.removesuffix(' bytes')} (bytes)" if name.endswith(" bytes") else name
    before, after = ("-" if value is None else f"{value:,}" for value in (change.baseline, change.candidate))
    difference = change.difference
    if difference is None:
        return quantity, before, after, "no longer known" if change.candidate is None else "not known before"
    percent = round(100 * difference / change.baseline, 1) if change.baseline else 0
    return quantity, before, after, f"{difference:+,}" + (f" ({fixed(percent, 1, '+')} %)" if percent else "")


def output_texts(result: GateResult) -> list[str]:
    """Changes of each case's outputs, where there is something to tell, and the option that accepts it."""
    option = "; --outputs may-change accepts it" if result.must_match else ""
    words = {
        "same": "are the same; {}",
        "changed": "changed, from the same seed and input: {}" + option,
        "not compared": "are not compared: {}",
    }
    changed = [each for each in result.outputs if each.reason]
    return [
        f"Outputs of {case_label(result, each.case)} {words[each.verdict].format(one_line(each.reason))}"
        for each in changed
    ]


def growth_texts(result: GateResult) -> list[str]:
    """For each case that grew: what, by how much, and the option that accepts it."""
    grown: dict[str, list[ExactChange]] = {}
    for change in result.exact:
        if change.growth > 0:
            grown.setdefault(change.case, []).append(change)
    lines = []
    for case, changes in grown.items():
        parts = ", ".join(f"{exact_cells(each)[0]} +{_size(each)}" for each in changes)
        option = accepting([change for change in changes if change.fails])
        verdict = f"To accept this: {option}" if option else "This is accepted."
        lines.append(f"{case_label(result, case)} grew: {parts}. {verdict}")
    return lines


def accepting(changes: Iterable[ExactChange]) -> str:
    """The option that accepts these growths, `--accept macs=6%,params=50%`; empty without any."""
    most: dict[str, float] = {}
    for change in changes:
        most[change.metric] = max(change.growth, most.get(change.metric, 0.0))
    named = (f"{name}={math.ceil(round(100 * share, 6))}%" if share < 9 else name for name, share in most.items())
    return f"--accept {each}" if (each := ",".join(named)) else ""


def _size(change: ExactChange) -> str:
    """A growth as a share; from 0, as a number."""
    return f"{change.difference:,}" if math.isinf(change.growth) else f"{significant(100 * change.growth, 2)} %"


def exact_text(change: ExactChange) -> str:
    quantity, before, after, difference = exact_cells(change)
    return f"{quantity}: {before} -> {after}, {difference}"


def worst_first(rows: Iterable[RowVerdict]) -> list[RowVerdict]:
    order = list(TONES)
    return sorted(rows, key=lambda row: order.index(word_of(row)))


def word_counts(result: GateResult) -> Counter[str]:
    return Counter(map(word_of, result.rows))
