"""`ctxbench.diff`."""

from pathlib import Path

from ctxbench.table.result import Result

from .run_data import RunData, open_run
from .tables.difference import difference_table


def diff(first: str | Path, second: str | Path) -> Result[tuple[RunData, RunData]]:
    """The numbers in which two run folders differ, as ratios of the second to the first, exact ones first.

    Raises UsageError for a folder that is no run, and for runs without a common case.
    """
    runs = open_run(Path(first)), open_run(Path(second))
    return Result(runs, (difference_table(*runs),))
