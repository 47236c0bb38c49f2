"""A result and a self-test for a terminal, as tables and sentences.

Names, notes and reasons come from outside: they are shown as they are, and no markup in them is obeyed.
"""

from collections import defaultdict

from rich.console import Group, RenderableType
from rich.text import Text

from ctxbench.base.texts import one_line
from ctxbench.plugins.check.result import GateResult
from ctxbench.plugins.check.self_test import SelfTest
from ctxbench.plugins.check.tables import exact_table, row_table, spread_table
from ctxbench.plugins.check.texts import (
    ADVISORY,
    TONES,
    loud,
    remarks,
    row_label,
    self_test_summary,
    summary,
    title_of,
    word_of,
    worst_first,
)
from ctxbench.table import terminal


def result_page(result: GateResult) -> RenderableType:
    """The result for a terminal: a row a latency, the exact changes, why rows are not ok, and one sentence for all."""
    parts: list[RenderableType] = [Text(title_of(result), style="bold")]
    if result.rows:
        parts += [Text(), terminal.TerminalTable(row_table(result, result.rows))]
    if result.exact:
        parts += [Text(), terminal.TerminalTable(exact_table(result))]
    parts.append(Text())
    parts += [
        Text.assemble((f"{loud(word)} ", terminal.TONES[TONES[word]]), f"{', '.join(labels)}: {reason}")
        for (word, reason), labels in _reasons(result).items()
    ]
    parts += [Text(line, style="bold yellow" if line == ADVISORY else "dim") for line in remarks(result)]
    parts.append(Text(summary(result), style="bold"))
    return Group(*parts)


def self_test_page(tested: SelfTest) -> RenderableType:
    """Sensitivity of the machine, shown below the result: a row a latency, and the summary in sentences."""
    lines = [Text(line, style="bold") for line in self_test_summary(tested)]
    return Group(Text(), terminal.TerminalTable(spread_table(tested)), Text(), *lines)


def _reasons(result: GateResult) -> dict[tuple[str, str], list[str]]:
    """The labels of the rows that are not ok, by what they came to and why."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in worst_first(result.rows):
        if word_of(row) != "ok":
            found[word_of(row), one_line(row.reason)].append(row_label(result, row.row))
    return found
