"""Runs of one suite side by side: each quantity run by run, with ratios, and why a row cannot be compared."""

from collections.abc import Sequence

from .runs import RunData
from .table import Table


def compare_runs(runs: Sequence[RunData]) -> Table:
    raise NotImplementedError
