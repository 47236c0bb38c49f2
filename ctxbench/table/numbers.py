"""Plain numbers behind a table: columns of values, and the data frame and the CSV that are made of them."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from ctxbench.base.texts import csv_cell

if TYPE_CHECKING:
    import pandas as pd

# Counts go to Int64 as objects, not through float64: above 2^53 they stay exact.
DTYPES: dict[type | None, str] = {int: "Int64", float: "float64", str: "string"}


@dataclass(frozen=True)
class Numbers:
    """Columns of the same length, with None for what is not known; `types` are those of a data frame's columns."""

    columns: Mapping[str, Sequence[Any]]
    types: Mapping[str, type] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, rows: Sequence[Any], names: Iterable[str] = (), types: Mapping[str, type] | None = None) -> Self:
        """The columns of rows, which are mappings: those named, or all that any row has."""
        found = {name: [row[name] for row in rows] for name in names}
        every = dict.fromkeys(chain.from_iterable(row.keys() for row in rows))
        return cls(found or {name: [row.get(name) for row in rows] for name in every}, types or {})

    @property
    def frame(self) -> "pd.DataFrame":
        """The columns as a data frame; pandas chooses the type of one that has none."""
        import pandas as pd  # slow to import, and few need a frame

        return pd.DataFrame(
            {name: pd.Series(each, dtype=DTYPES.get(self.types.get(name))) for name, each in self.columns.items()}
        )

    @property
    def csv(self) -> str:
        """The columns as a CSV for people."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(map(csv_cell, self.columns))
        writer.writerows(map(_cells, zip(*self.columns.values(), strict=True)))
        return buffer.getvalue()


def _cells(row: Iterable[Any]) -> list[Any]:
    return ["" if value is None or value != value else csv_cell(value) for value in row]  # NaN is not itself
