"""The tables of a result and of a self-test, which the terminal and Markdown draw."""

from collections.abc import Sequence

from ctxbench.base.texts import one_line
from ctxbench.plugins.check.result import GateResult
from ctxbench.plugins.check.rows import PREDICTED, RowVerdict
from ctxbench.plugins.check.self_test import SelfTest
from ctxbench.plugins.check.texts import (
    PLURAL,
    TONES,
    case_label,
    change_cells,
    exact_cells,
    loud,
    percent,
    word_of,
)
from ctxbench.table.table import Cell, Origin, Table, Tone, plain_table


def row_table(result: GateResult, rows: Sequence[RowVerdict], *, reasons: bool = False) -> Table:
    """A row a latency: its change, its verdict and, if `reasons`, why."""
    headings: dict[str, Origin] = {
        "case": "label", "mode": "label", "change": "measured", "interval": "measured", "verdict": "text",
        PLURAL[result.evidence]: "counted",
    }  # fmt: skip
    cells: list[tuple[str | Cell, ...]] = [
        (
            case_label(result, row.row.case),
            row.row.mode,
            *change_cells(row),
            Cell(loud(word_of(row)), tone=TONES[word_of(row)]),
            str(row.replicates) if row.status != PREDICTED else "-",
            *[one_line(row.reason)] * reasons,
        )
        for row in rows
    ]
    return plain_table(headings | ({"reason": "text"} if reasons else {}), cells)


def exact_table(result: GateResult) -> Table:
    """The exact quantities that changed."""
    rows: list[tuple[str | Cell, ...]] = []
    for change in result.exact:
        *texts, difference = exact_cells(change)
        tone: Tone = "bad" if change.worse else ""
        rows.append((case_label(result, change.case), *texts, Cell(difference, tone=tone)))
    counts: dict[str, Origin] = dict.fromkeys(("baseline", "candidate", "difference"), "counted")
    return plain_table({"case": "label", "quantity": "label", **counts}, rows)


def spread_table(tested: SelfTest) -> Table:
    """A row a latency: by how much it was slowed, and which changes the machine can see."""
    rows = [
        (
            case_label(tested.result, each.row.case),
            each.row.mode,
            percent(each.injected or None),
            percent(each.deviation),
            percent(each.visible),
        )
        for each in tested.spreads
    ]
    shares: dict[str, Origin] = dict.fromkeys(("injected", "spread", "visible"), "measured")
    return plain_table({"case": "label", "mode": "label", **shares}, rows, "What this machine can see")
