"""A result in the terminal: its tables, remarks and sentences, and those of a self-test."""

import math
import re
from dataclasses import replace

import pytest
from gate_results import (
    BROKEN,
    DOUBTFUL,
    EVERYTHING,
    HAM,
    LATE,
    OK,
    REGRESSED,
    SA,
    TESTED,
    drawn,
    measured,
    result,
    self_test,
    shown,
)

from ctxbench.plugins.check import ci_files, terminal, texts
from ctxbench.plugins.check.power import Spread
from ctxbench.plugins.check.result import ExactChange, ExitCode
from ctxbench.plugins.check.rows import RowKey
from ctxbench.plugins.check.tables import exact_table, row_table

pytestmark = pytest.mark.slow  # many small cases, which take seconds together
A_INFER, A_TRAIN, B_INFER = RowKey("a", "infer"), RowKey("a", "train"), RowKey("b", "infer")


@pytest.mark.parametrize(
    ("change", "low", "high", "cells"),
    [
        (0.0123, -0.003, 0.0271, ("+1.2 %", "[-0.3, +2.7]")),  # half width 1.5 %
        (0.0012, -0.0031, 0.0055, ("+0.12 %", "[-0.31, +0.55]")),  # 0.43 %
        (0.2, -0.1, 0.5, ("+20 %", "[-10, +50]")),  # 30 %
        (-0.00001, -0.02, 0.02, ("+0.0 %", "[-2.0, +2.0]")),
        (0.1, 0.1, 0.1, ("+10.00 %", "[+10.00, +10.00]")),
        (2.0, -0.9, 1e12, ("+200 %", "[-90, +1e+14]")),
        (0.2, -1.0, math.inf, ("+20.0 %", "-")),
        (math.nan, -1.0, math.inf, ("-", "-")),
        (math.inf, math.nan, math.nan, ("-", "-")),
    ],
)
def test_a_change_has_the_digits_that_its_interval_justifies(
    change: float, low: float, high: float, cells: tuple[str, str]
) -> None:
    assert texts.change_cells(measured(RowKey("sa", "infer"), "ok", change, low, high, 4, "")) == cells


def test_the_table_at_80_columns() -> None:
    lines = [line.rstrip() for line in drawn(EVERYTHING).splitlines()]
    assert lines == [
        "the working tree against main (1a2b3c4d5e)",
        "",
        "case  mode    change        interval  verdict       pairs",
        "────  ─────  ───────  ──────────────  ────────────  ─────",
        "sa    infer   +9.1 %   [+6.4, +12.3]  REGRESSED        16",
        "sa    train  +0.12 %  [-0.31, +0.55]  ok                4",
        "ham   infer   +3.0 %    [-2.1, +9.1]  inconclusive     24",
        "ham   train  +20.0 %   not known yet  inconclusive      1",
        "mine  infer        -               -  BROKEN            0",
        "dm    infer        -               -  NOT COMPARED      0",
        "",
        "case  quantity                         baseline  candidate          difference",
        "────  ──────────────────────────────  ─────────  ─────────  ──────────────────",
        "sa    params                          1,048,576  1,310,720  +262,144 (+25.0 %)",
        "ham   memory train predicted (bytes)      2,000      1,500      -500 (-25.0 %)",
        "",
        "BROKEN mine infer: error: RuntimeError: sizes differ",
        "REGRESSED sa infer: Above the margin.",
        "NOT COMPARED dm infer: unsupported: no complex numbers",
        "inconclusive ham infer: Around the margin.",
        "inconclusive ham train: No time was left.",
        "Outputs of sa changed, from the same seed and input: the output by 50 %",
        "sa grew: params +25 %. To accept this: --accept params=25%",
        "Note: Uncommitted changes are measured.",
        "Margin 5 %, measured in 187 s. Conditions: 2 threads",
        "6 rows: 1 broken, 1 regressed, 1 not compared, 2 inconclusive, 1 ok. 130 exact",
        "quantities: 2 changed (1 worse). Outputs and gradients of 2 cases: 1 changed, 1",
        "same. Exit code 4: broken.",
    ]


def test_rows_with_one_reason_share_a_line_and_a_long_reason_is_wrapped_whole() -> None:
    late = replace(DOUBTFUL, reason=LATE.reason)
    assert "inconclusive ham infer, ham train: No time was left." in drawn(result(late, LATE), 120)
    words = [f"word{number}" for number in range(60)]
    assert drawn(result(replace(BROKEN, reason=" ".join(words))), 40).split().count("word59") == 1


def test_nothing_is_cut_in_a_narrow_terminal() -> None:
    row = replace(DOUBTFUL, row=RowKey("a" * 70, "infer"))
    assert drawn(result(row), 60).count("a") >= 140  # in the table, and before the reason


def test_what_fails_is_red_and_in_capitals() -> None:
    verdicts = [(row.cells[4].text, row.cells[4].tone) for row in row_table(EVERYTHING, EVERYTHING.rows).rows]
    assert verdicts == [
        *(("REGRESSED", "bad"), ("ok", "good"), ("inconclusive", "doubtful"), ("inconclusive", "doubtful")),
        *(("BROKEN", "bad"), ("NOT COMPARED", "bad")),
    ]
    assert [row.cells[-1].tone for row in exact_table(EVERYTHING).rows] == ["bad", ""]
    coloured = drawn(EVERYTHING, force_terminal=True, color_system="standard", _environ={})
    assert coloured.count("\x1b[1;31mBROKEN") == 2  # in the table, and before the reason


def test_a_quantity_may_become_unknown_or_known() -> None:
    text = drawn(result(OK, exact=(ExactChange(SA, "macs", 5, None), ExactChange(HAM, "macs", None, 5))))
    assert re.search(r"macs +5 +- +no longer known", text)
    assert re.search(r"macs +- +5 +not known before", text)
    assert "2 changed (1 worse)" in text


def test_the_sentence_for_a_gate_without_rows() -> None:
    found = result(exit_code=ExitCode.NOTHING_COMPARED, compared=0)
    sentence = "0 rows: none measured. 0 exact quantities: none changed. Exit code 5: nothing compared."
    assert texts.summary(found) == sentence
    assert sentence in " ".join(drawn(found).split())


def test_the_self_test_at_80_columns() -> None:
    lines = [line.rstrip() for line in shown(terminal.self_test_page(TESTED)).splitlines()]
    assert lines == [
        "",
        "What this machine can see",
        "",
        "case  mode   injected  spread  visible",
        "────  ─────  ────────  ──────  ───────",
        "sa    infer    10.0 %   1.2 %    8.0 %",
        "sa    train         -   0.5 %    6.0 %",
        "ham   train         -       -        -",
        "",
        "0 of 2 unchanged rows called regressed, 1 inconclusive. If the rows are",
        "independent, the rate is at most 77.6 %, with 95 % confidence.",
        "1 of 1 injected slowdown found.",
        "Spread between pairs: median 0.9 %, largest 1.2 %.",
        "Smallest slowdown that 95 of 100 checks with this budget find: median 7.0 %,",
        "largest 8.0 %.",
        "The spread of 1 row with fewer than two pairs is not known.",
    ]


BOUND = "If the rows are independent, the rate is at most {} %, with 95 % confidence."


def test_the_markdown_of_a_self_test_says_what_the_machine_decides() -> None:
    written = ci_files.markdown(TESTED.result, TESTED)
    assert "| sa | infer | 10.0 % | 1.2 % | 8.0 % |" in written
    assert written.endswith("\n\n".join(texts.self_test_summary(TESTED)) + "\n")
    assert written.startswith(ci_files.markdown(TESTED.result))


def test_a_self_test_counts_alarms_and_what_was_missed() -> None:
    rows = (replace(REGRESSED, row=A_INFER), replace(OK, row=A_TRAIN), replace(BROKEN, row=B_INFER), DOUBTFUL)
    spreads = (
        Spread(A_INFER, 0.0, 0.01, 0.07),  # a false alarm
        Spread(A_TRAIN, 0.1, 0.02, 0.08),  # missed
        Spread(B_INFER, 0.0, None, None),  # broken, and so no chance for a false alarm
        Spread(DOUBTFUL.row, 0.1, 0.03, 0.09),  # undecided, and so not found
    )
    tested = self_test(*spreads, rows=rows)
    counts = {"unchanged": 1, "false_alarms": 1, "undecided": 0, "injected": 2, "found": 0}
    assert texts.self_test_counts(tested) == counts
    assert texts.self_test_summary(tested)[:2] == [
        "1 of 1 unchanged row called regressed. " + BOUND.format(100.0),
        "0 of 2 injected slowdowns found.",
    ]


def test_a_self_test_says_that_the_budget_is_too_short() -> None:
    assert texts.self_test_summary(self_test(Spread(OK.row, 0.0, 0.012, None))) == [
        "0 of 1 unchanged row called regressed. " + BOUND.format(95.0),
        "Spread between pairs: median 1.2 %, largest 1.2 %.",
        "The budget is too short to find a slowdown of any size.",
    ]
    assert texts.self_test_summary(self_test(Spread(LATE.row, 0.0, None, None)))[1:] == [
        "The spread of 1 row with fewer than two pairs is not known."
    ]


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (0.0, "0.0 %"), (0.07, "7.0 %"), (0.12345, "12.3 %"), (999.0, "99900.0 %"), (7e10, "7e+12 %")],
)
def test_a_share_is_written_as_a_percentage(share: float | None, text: str) -> None:
    assert texts.percent(share) == text
