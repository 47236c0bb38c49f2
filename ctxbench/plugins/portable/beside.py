"""Columns that `choose` and `compare` put beside costs: how many targets take a block."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ctxbench.base.errors import UsageError
from ctxbench.plugins.portable.found import PHONES, SERVERS, Found, found_of
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


def on_targets(keys: Sequence[str]) -> tuple[list[tuple[TableColumn, list[Cell]]], str]:
    """Columns with the numbers of targets of servers and of phones that take each block, and a sentence on them.

    None and "" if no block is known.
    """
    if not any(key in stored() for key in keys):
        return [], ""
    found = []
    for group, names in {"servers": SERVERS, "phones": PHONES}.items():
        taken = [sum(stored()[key][name].converted for name in names) if key in stored() else None for key in keys]
        cells = [Cell() if number is None else Cell(f"{number} of {len(names)}", number) for number in taken]
        found.append((TableColumn(f"on_{group}", group, "targets", "measured", group), cells))
    return found, _SENTENCE


_SENTENCE = (
    "Servers and phones: how many of ONNX Runtime and OpenVINO, and of ExecuTorch (XNNPACK), Core ML (converted, not "
    f"run) and LiteRT take the block, whole or in parts, with 64 channels at 16 x 16 ({FOLDER}); TensorRT is not tried."
)
