"""The rows of a data frame of records, one by one."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def rows_of(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows as mappings from column to value, with None for what is not known."""
    import pandas as pd

    def known(value: Any) -> Any:
        return None if value is pd.NA or value != value else value  # NaN is not itself

    # `to_dict("records")` takes a hundred times as long.
    columns = [[known(value) for value in frame[name].tolist()] for name in frame.columns]
    return [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]
