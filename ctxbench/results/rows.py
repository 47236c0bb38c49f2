"""Records as rows, each a mapping from column to value with None for what is not known."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxbench.model.metric import RecordRow


def rows_in(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows of columns of the same length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def is_filled(rows: "Iterable[RecordRow]", column: str) -> bool:
    """Return whether any row has a value in a column."""
    return any(row[column] is not None for row in rows)


def by_values(rows: "Iterable[RecordRow]", *names: str) -> "dict[tuple[Any, ...], list[RecordRow]]":
    """The rows with the same values of these columns, by those values, both in the order of the rows."""
    found: dict[tuple[Any, ...], list[RecordRow]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
