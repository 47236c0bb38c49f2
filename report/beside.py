"""Columns that plugins put beside costs."""

from collections.abc import Sequence

from ctxbench.plugin import loaded
from ctxbench.table.table import Cell, TableColumn


def beside(keys: Sequence[str]) -> tuple[list[tuple[TableColumn, list[Cell]]], list[str]]:
    """Columns that plugins put beside modules of these keys, a cell for each key, and their sentences on them."""
    found = [columns_of(keys) for columns_of in loaded("beside")]
    return [column for columns, _ in found for column in columns], [text for _, text in found if text]
