"""Column that `choose` and `compare` put beside costs: how many targets of phones take a block."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ctxbench.base.errors import UsageError
from ctxbench.plugins.portable.found import PHONES, Found, found_of
from ctxbench.results.csv_file import csv_rows
from ctxbench.table.table import Cell, TableColumn

FOLDER = "results/portable-cpu"
RECORDS = Path(__file__).resolve().parents[3] / FOLDER / "records.csv"


@cache
def stored() -> dict[str, dict[str, Found]]:
    """Findings of the committed run by block and target; none where ctxbench is no clone with its results."""
    try:
        header, lines = csv_rows(RECORDS)
    except UsageError:
        return {}
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    return {row["module"]: found_of(row) for row in rows if row["portable_found"]}


def on_phones(keys: Sequence[str]) -> tuple[list[tuple[TableColumn, list[Cell]]], str]:
    """A column with the number of targets of phones that take each block, and a sentence; none if no block is known."""
    found = {key: sum(stored()[key][name].converted for name in PHONES) for key in keys if key in stored()}
    if not found:
        return [], ""
    cells = [Cell(f"{found[key]} of {len(PHONES)}", found[key]) if key in found else Cell() for key in keys]
    return [(TableColumn("on_phones", "phones", "targets", "measured", "phones"), cells)], _SENTENCE


_SENTENCE = (
    "Phones: how many of ExecuTorch (XNNPACK), Core ML (converted, not run) and LiteRT take the block, whole or in "
    f"parts, with 64 channels at 16 x 16 ({FOLDER})."
)
