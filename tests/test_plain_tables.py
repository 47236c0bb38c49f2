"""Tables of texts, which commands, the gate, the docs and benchmarks make: how each format draws one."""

import io
import math

import pandas as pd
import pytest
from rich.console import Console

from ctxbench.base.terminal import console
from ctxbench.table.markdown import render_markdown
from ctxbench.table.numbers import Numbers
from ctxbench.table.table import Cell, Row, Table, TableColumn, Tone, plain_table
from ctxbench.table.terminal import TerminalTable

KERNELS = plain_table(
    {"operator": "label", "ms": "predicted", "bound by": "text"},
    [("bmm", "65.4", "arithmetic"), ("_softmax", "2.39", "bandwidth of the memory")],
)


def drawn(table: Table, width: int, **options: object) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, **options)  # type: ignore[arg-type]  # of several types
    screen.print(TerminalTable(table))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def test_numbers_stand_on_the_right_and_words_are_broken_into_lines() -> None:
    assert drawn(KERNELS, 40) == [
        "operator    ms  bound by",
        "────────  ────  ───────────────────────",
        "bmm       65.4  arithmetic",
        "_softmax  2.39  bandwidth of the memory",
    ]
    assert drawn(KERNELS, 28) == [
        "operator    ms  bound by",
        "────────  ────  ────────────",
        "bmm       65.4  arithmetic",
        "_softmax  2.39  bandwidth of",
        "                the memory",
    ]


def test_a_label_is_broken_before_columns_go_below_with_it() -> None:
    row = ("a" * 20, "1,234,567", "12,345,678")
    table = plain_table({"case": "label", "first": "counted", "second": "counted"}, [row])
    assert drawn(table, 36)[2:] == ["aaaaaaaaaaaaa  1,234,567  12,345,678", "aaaaaaa"]
    assert drawn(table, 24) == [
        *("case               first", "─────────────  ─────────", "aaaaaaaaaaaaa  1,234,567", "aaaaaaa", ""),
        *("case              second", "────────────  ──────────", "aaaaaaaaaaaa  12,345,678", "aaaaaaaa"),
    ]


def test_columns_stay_together_where_nothing_names_a_row() -> None:
    table = plain_table({"MiB": "predicted", "of": "text", "blocks": "counted"}, [("1,234.00", "maps", "1")])
    lines = ["     MiB  of  blocks", "────────  ──  ──────", "1,234.00  ma       1", "          ps"]
    assert drawn(table, 20) == lines


def test_a_table_without_headings_has_no_rule() -> None:
    columns = TableColumn("fact", "", "", "label"), TableColumn("value", "", "", "text", "value")
    facts = Table("", "", columns, (Row((Cell("key"), Cell("se"))), Row((Cell("title"), Cell("Squeeze")))))
    assert drawn(facts, 40) == ["key    se", "title  Squeeze"]


@pytest.mark.parametrize(("tone", "code"), [("good", "32"), ("doubtful", "1;33"), ("bad", "1;31"), ("", "")])
def test_a_tone_has_a_colour(tone: Tone, code: str) -> None:
    table = plain_table({"verdict": "text"}, [(Cell("so", tone=tone),)])
    line = drawn(table, 40, force_terminal=True, color_system="standard", _environ={})[-1]
    assert line == (f"\x1b[{code}mso\x1b[0m" if code else "so")


def test_columns_are_even_beside_wide_and_escaped_characters() -> None:
    table = plain_table({"case": "label", "ms": "measured"}, [("漢字漢字漢", "1"), ("\x1b[2J", "2")])
    screen = console(width=40)
    with screen.capture() as captured:
        screen.print(TerminalTable(table))
    assert captured.get().splitlines()[2:] == ["漢字漢字漢   1", r"\x1b[2J      2"]


def test_markdown_has_the_table_alone_and_escapes_what_is_no_markdown() -> None:
    rows = [("`sa` | 2", "1.5", "")]
    table = plain_table({"module": "label", "ms": "predicted", "note": "text"}, rows)
    head = "| module | ms | note |\n| :-- | --: | :-- |\n"
    assert render_markdown(table) == head + "| \\`sa\\` \\| 2 | *1.5* |  |\n"
    assert render_markdown(table, trusted=True) == head + "| `sa` | 2 | *1.5* |  |\n"


def test_the_csv_of_a_table_without_numbers_of_its_own_has_its_texts() -> None:
    assert KERNELS.csv == "operator,ms,bound by\nbmm,65.4,arithmetic\n_softmax,2.39,bandwidth of the memory\n"


def test_numbers_keep_whole_ones_whole_beside_what_is_not_known() -> None:
    numbers = Numbers.of_rows([{"n": 2**60, "ms": math.nan, "text": "=1+1"}, {"n": None, "ms": 0.5}], types={"n": int})
    assert numbers.csv == f"n,ms,text\n{2**60},,'=1+1\n,0.5,\n"
    assert numbers.frame["n"].tolist() == [2**60, pd.NA]
