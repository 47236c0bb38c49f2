"""`ctxbench.diff`."""

from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.table.result import Result

if TYPE_CHECKING:
    from .run_data import RunData


def diff(first: str | Path, second: str | Path) -> "Result[tuple[RunData, RunData]]":
    """Compare two runs: the numbers in which they differ, as ratios of the second to the first, exact ones first.

    Args:
        first: A run folder.
        second: Another one, which may be of another suite.

    Returns:
        Both runs; the table is in `tables`.

    Raises:
        UsageError: For a folder that is no run, and for runs without a common case.

    Example:
        >>> for folder in ("before", "after"):
        ...     _ = ctxbench.run("quick", modules="se", shape=(1, 16, 4, 4), static=True, out=folder)
        >>> ctxbench.diff("before", "after").frame.empty
        True
    """
    from .run_data import open_run  # pandas, which --help does not need
    from .tables.difference import difference_table

    runs = open_run(Path(first)), open_run(Path(second))
    return Result(runs, (difference_table(*runs),))
