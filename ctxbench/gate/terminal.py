"""A result and a self-test for a terminal, as tables and sentences.

Names, notes and reasons come from outside: they are shown as they are, and no markup in them is obeyed.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ctxbench.gate.result import GateResult
from ctxbench.gate.rows import RowKey
from ctxbench.gate.self_test import SelfTest
from ctxbench.gate.texts import (
    ADVISORY,
    PLURAL,
    STYLES,
    case_label,
    change_cells,
    clean,
    exact_cells,
    loud,
    percent,
    remarks,
    row_label,
    self_test_summary,
    summary,
    title_of,
    word_of,
    worst_first,
)


def table(result: GateResult) -> RenderableType:
    """The result for a terminal: a row a latency, the exact changes, why rows are not ok, and one sentence for all."""
    parts: list[RenderableType] = [Text(title_of(result), style="bold")]
    if result.rows:
        parts += [Text(), _row_table(result)]
    if result.exact:
        parts += [Text(), _exact_table(result)]
    parts.append(Text())
    parts += [
        Text.assemble((f"{loud(word)} ", STYLES[word]), f"{', '.join(labels)}: {reason}")
        for (word, reason), labels in _reasons(result).items()
    ]
    parts += [Text(line, style="bold yellow" if line == ADVISORY else "dim") for line in remarks(result)]
    parts.append(Text(summary(result), style="bold"))
    return Group(*parts)


def self_test_table(tested: SelfTest) -> RenderableType:
    """What the machine can see, to stand below the result's table: a row a latency, and the summary in sentences."""
    shown = _columns(("case", "mode", "injected >", "spread >", "visible >"))
    rows = [each.row for each in tested.spreads]
    for spread, names in zip(tested.spreads, _names(tested.result, rows), strict=True):
        shown.add_row(*names, percent(spread.injected or None), percent(spread.deviation), percent(spread.visible))
    lines = [Text(line, style="bold") for line in self_test_summary(tested)]
    return Group(Text(), Text("What this machine can see", style="bold"), Text(), shown, Text(), *lines)


def _reasons(result: GateResult) -> dict[tuple[str, str], list[str]]:
    """The labels of the rows that are not ok, by what they came to and why."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in worst_first(result.rows):
        if word_of(row) != "ok":
            found[word_of(row), clean(row.reason)].append(row_label(result, row.row))
    return found


def _row_table(result: GateResult) -> Table:
    shown = _columns(("case", "mode", "change >", "interval >", "verdict", f"{PLURAL[result.evidence]} >"))
    for row, names in zip(result.rows, _names(result, [each.row for each in result.rows]), strict=True):
        verdict = Text(loud(word_of(row)), style=STYLES[word_of(row)])
        change, interval = change_cells(row)
        shown.add_row(*names, change, Text(interval), verdict, str(row.replicates))
    return shown


def _names(result: GateResult, rows: Sequence[RowKey]) -> Iterator[tuple[Text, str]]:
    """Case and mode of each row; a case's name is shown once where its modes follow each other."""
    last = None
    for row in rows:
        yield Text("" if row.case == last else case_label(result, row.case)), row.mode
        last = row.case


def _exact_table(result: GateResult) -> Table:
    shown = _columns(("case", "quantity", "baseline >", "candidate >", "difference >"))
    for change in result.exact:
        *cells, difference = (case_label(result, change.case), *exact_cells(change))
        shown.add_row(*map(Text, cells), Text(difference, style="bold red" if change.worse else ""))
    return shown


def _columns(headers: Sequence[str]) -> Table:
    """An empty table; a column of numbers, which are never broken up, has a `>` behind its header."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        name = header.removesuffix(" >")
        numeric = name != header
        shown.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    return shown
