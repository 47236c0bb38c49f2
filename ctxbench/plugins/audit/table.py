"""An audit as a table, and in one sentence."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctxbench.plugins.audit.conventions import TOOLS
from ctxbench.plugins.audit.finding import AuditFinding, Verdict
from ctxbench.plugins.audit.recounted import COUNTS, RecountedTable
from ctxbench.table.table import Cell, Footnotes, Origin, Table, Tone, plain_table

_TONES: dict[Verdict, Tone] = {
    Verdict.EQUAL: "good",
    Verdict.CONVENTION: "good",
    Verdict.CONFIGURATION: "doubtful",
    Verdict.NOT_AS_COLUMN: "doubtful",
    Verdict.NOT_REPRODUCED: "doubtful",
    Verdict.CANNOT_BE: "bad",
    Verdict.NOT_JUDGED: "",
}


def audit_table(table: RecountedTable, findings: Sequence[AuditFinding], remarks: Sequence[str] = ()) -> Table:
    """Each figure that can be counted, what is counted, the verdict and its reason; below, the source and its notes.

    `remarks` are further lines below.
    """
    notes = Footnotes()
    rows = []
    for each in findings:
        if each.quantity not in COUNTS:
            continue
        own = (table.rows[each.row].notes.get(each.quantity), table.notes.get(each.quantity))
        numbers = tuple(notes.number(text) for text in own if text)
        verdict = Cell(each.verdict, tone=_TONES[Verdict(each.verdict)])
        rows += [(each.row, each.quantity, Cell(each.printed, notes=numbers), each.counted, verdict, each.why)]
    headings: dict[str, Origin] = {"row": "label", "quantity": "label", "printed": "published", "counted": "counted"}
    made = plain_table({**headings, "verdict": "text", "why": "text"}, rows, f"{table.title}: {summary(findings)}")
    lines = (*of_columns(findings), *remarks, *caption(table), *_tried(findings), *_left_out(findings))
    return replace(made, caption=lines, notes=notes.texts)


def _left_out(findings: Sequence[AuditFinding]) -> list[str]:
    """A line for each reason why figures are not in the table."""
    reasons: dict[str, dict[str, None]] = {}
    for each in findings:
        if each.quantity not in COUNTS:
            reasons.setdefault(each.why, {})[each.quantity] = None
    return [f"Not judged: {', '.join(quantities)}; {why}." for why, quantities in reasons.items()]


def _tried(findings: Sequence[AuditFinding]) -> list[str]:
    """A line for each quantity with a figure that is not reproduced, with the counters that were tried."""
    lost = dict.fromkeys(each.quantity for each in findings if each.verdict == Verdict.NOT_REPRODUCED)
    return [f"Counters tried for {each}: {_by_version(TOOLS[each])}." for each in lost if each in TOOLS]


def _by_version(names: Iterable[str]) -> str:
    """`thop@0.1.1 (also folded-norms), ...`: the names of counters, with the states of each version behind it."""
    states: dict[str, list[str]] = {}
    for name in names:
        version, _, state = name.partition("+")
        states.setdefault(version, []).extend([state] * bool(state))
    return ", ".join(f"{version} (also {', '.join(own)})" if own else version for version, own in states.items())


def of_columns(findings: Sequence[AuditFinding]) -> list[str]:
    """A line for each column of two judged figures or more: by which convention how many of them are equal."""
    columns: dict[str, list[AuditFinding]] = {}
    for each in findings:
        if each.verdict != Verdict.NOT_JUDGED:
            columns.setdefault(each.quantity, []).append(each)
    lines = []
    for quantity, own in columns.items():
        verdicts = Counter(each.verdict for each in own)
        equal, other = verdicts[Verdict.EQUAL], verdicts[Verdict.CONVENTION]
        name = next((each.why for each in own if each.verdict == Verdict.CONVENTION), "as the source means it")
        if len(own) > 1 and 2 * (equal + other) > len(own):
            lines.append(f"{quantity}: {equal + other} of {len(own)} figures are equal by one convention: {name}.")
        elif len(own) > 1:
            lines.append(f"{quantity}: no convention makes more than half of the {len(own)} figures equal.")
    return lines


def caption(table: RecountedTable) -> list[str]:
    """Source of the figures, and their meaning in the source's words."""
    seen = "read" if table.seen == "read" else "recalled from memory, and not yet compared with the source"
    lines = [f"printed: {table.source}; {seen}."]
    lines = lines if table.authors else []
    where = ", ".join(filter(None, [table.device, table.software]))
    lines += [f"on {where}."] * bool(where)
    lines += [
        f"{quantity}, as the source means it: {form} of what is counted." for quantity, form in table.counts.items()
    ]
    lines += [f"macs, as the source means it: as {table.tool} counts."] * bool(table.tool)
    quantities = dict.fromkeys(key for row in table.rows.values() for key in row.printed if key in COUNTS)
    units = ((key, table.unit(key)) for key in quantities)
    lines.append(f"{', '.join(f'{key} in {unit if unit.exponent else unit.symbol}' for key, unit in units)}.")
    return lines


def summary(findings: Sequence[AuditFinding]) -> str:
    """`8 of 16 equal, 2 cannot be, ...`, of the figures that are judged."""
    counts = Counter(each.verdict for each in findings)
    judged = len(findings) - counts[Verdict.NOT_JUDGED]
    parts = [f"{counts[each]} {each}" for each in Verdict if counts[each] and each != Verdict.NOT_JUDGED]
    left = f"; {counts[Verdict.NOT_JUDGED]} not judged" * bool(counts[Verdict.NOT_JUDGED])
    return f"of {judged} figures {', '.join(parts)}{left}" if judged else f"{len(findings)} figures, none judged"
