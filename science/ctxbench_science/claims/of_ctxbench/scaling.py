"""Claims of the suite `scaling` about the growth of times, beside the MACs of the same inputs."""

import math
from functools import partial

import pandas as pd

from ctxbench.base.fits import fit_line
from ctxbench.base.number import Number
from ctxbench.model.metric import RecordRow
from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, tally

AXES = {"H x W": "size", "batch": "batch", "channels": "channels"}
# How far above the exponent of the MACs the interval of the time's may end; a wider one decides nothing.
WIDE = 0.25


def growth(rows: Rows, axis: str, mode: str) -> Finding:
    """Finding on a mode's time growing no faster than the MACs, by the intervals of their exponents."""
    parts = {module: along(rows.of(module=module), AXES[axis]) for module in rows.modules()}
    varied = {module: part for module, part in parts.items() if len(part.split(AXES[axis])) > 2}
    if not varied:
        raise Missing(f"no module of this run has three sizes of {axis}")

    def is_no_faster(module: str) -> Outcome:
        part = varied[module]
        time = exponent(part.times(mode, AXES[axis]))
        macs = exponent(part.numbers("macs", AXES[axis])).value
        text = f"{time.text(decimals=2)} (MACs {macs:.2f})"
        return (False if time.low > macs else True if time.high <= macs + WIDE else None), text

    return tally(varied, is_no_faster, ("no faster", "faster"))


def along(rows: Rows, column: str) -> Rows:
    """The inputs of a module that differ in one size alone: at the values of the others with most inputs."""
    groups: dict[tuple[int, ...], list[RecordRow]] = {}
    for row in rows.rows:
        sized = {**row, "size": row["height"] * row["width"]}
        groups.setdefault(tuple(sized[each] for each in AXES.values() if each != column), []).append(sized)
    counts = {others: len({row[column] for row in group}) for others, group in groups.items()}
    return Rows([row for others, group in groups.items() if counts[others] == max(counts.values()) for row in group])


def exponent(values: "pd.Series[float]") -> Number:
    return fit_line(values.index.map(math.log), values.map(math.log)).slope


CRITERION = (
    "the 95 % interval of the exponent of the time ends at most "
    f"{WIDE} above the exponent of the MACs (faster: it lies above it); three or more processes for each time"
)
CLAIMS = tuple(
    Claim(f"Time ({mode}) grows with {axis} no faster than MACs", CRITERION, partial(growth, axis=axis, mode=mode))
    for axis in AXES
    for mode in ("train", "infer")
)
