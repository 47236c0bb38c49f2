"""Records as rows, each a mapping from column to value with None for what is not known, and as a data frame."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from ctxbench.model.metric import RecordRow

# Counts go to Int64 as objects, not through float64: above 2^53 they stay exact.
DTYPES = {int: "Int64", float: "float64", str: "string"}


def rows_in(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows of columns of the same length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def rows_of(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a data frame."""
    import pandas as pd

    def known(value: Any) -> Any:
        return None if value is pd.NA or value != value else value  # NaN is not itself

    # `to_dict("records")` takes a hundred times as long.
    return rows_in({name: [known(value) for value in frame[name].tolist()] for name in frame.columns})


def is_filled(rows: "Iterable[RecordRow]", column: str) -> bool:
    """Return whether any row has a value in a column."""
    return any(row[column] is not None for row in rows)


def frame_of_rows(rows: "Sequence[RecordRow]", names: Iterable[str], types: Mapping[str, type]) -> "pd.DataFrame":
    """These columns of rows as a data frame."""
    return frame_of({name: [row[name] for row in rows] for name in names}, types)


def frame_of(columns: Mapping[str, Sequence[Any]], types: Mapping[str, type]) -> "pd.DataFrame":
    """A data frame of columns; those without a type hold objects."""
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series(column, dtype=DTYPES.get(types.get(name, object), object)) for name, column in columns.items()}
    )
