"""What a figure draws: one panel for each device of each run, and in it the rows that can be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from .quantities import with_published
from .runs import CONDITIONS, SIZES, RunData

MOST_ROWS = 60
# One record: column to value.
Row = Mapping[Any, Any]


@dataclass(frozen=True, eq=False)
class Panel:
    """The rows of one run on one device, and what to call them."""

    title: str
    frame: pd.DataFrame
    run: RunData
    device: str

    @cached_property
    def main(self) -> pd.DataFrame:
        """The rows of one set of conditions: the one with the most rows; of equals, that of the largest input.

        At most MOST_ROWS: more names do not fit a figure.
        """
        names = [name for name in CONDITIONS if name != "device"]
        group = self.frame.groupby(names, dropna=False, sort=False).ngroup()
        size = self.frame[list(SIZES)].astype("float64").prod(axis=1).groupby(group).first()
        order = pd.DataFrame({"rows": group.value_counts(), "size": size}).sort_values(
            ["rows", "size"], ascending=False
        )
        return self.frame[group == order.index[0]].head(MOST_ROWS)

    def by_stream(self, table: pd.DataFrame) -> dict[Any, pd.DataFrame]:
        """The rows of a table of streams (`case`, `mode`, ...) that belong to the main rows, by case and mode."""
        own = table[table["case"].isin(self.main["case"])]
        return dict(iter(own.groupby(["case", "mode"], sort=False)))


def panels_of(runs: Sequence[RunData]) -> list[Panel]:
    """A panel for each device of each run that has rows."""
    found = []
    for run in runs:
        frame = with_published(run)
        for device in run.devices():
            name = run.device_name(device)
            title = f"{run.name}: {name}" if len(runs) > 1 else name
            found.append(Panel(title, frame[frame["device"] == device].reset_index(drop=True), run, device))
    return found


def label_of(row: Row) -> str:
    """The module's key, with its settings if it has any."""
    return f"{row['module']} {row['settings']}".strip()


def conditions_of(frame: pd.DataFrame) -> str:
    """Input and dtype of rows that share them."""
    first = frame.iloc[0]
    return f"input [{str(first['shape']).replace('x', ', ')}], {first['dtype']}"
