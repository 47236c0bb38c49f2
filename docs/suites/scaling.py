"""What a run of the suite `scaling` says of how times grow, beside the MACs of the same inputs."""

import math
from collections.abc import Iterator

import pandas as pd

from ctxbench.statistics import Line, fit_line

Claim = tuple[str, str, str | bool]
AXES = {"H x W": "size", "batch": "batch", "channels": "channels"}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    frame = frame.assign(size=frame["height"] * frame["width"])
    for axis, column in AXES.items():
        for mode in ("train", "infer"):
            yield times(along(frame, column), axis, column, mode)


def along(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The inputs that differ in a size alone, of the others the value with most inputs of a module."""
    others = [each for each in AXES.values() if each != column]
    parts = []
    for _, rows in frame.groupby("module", sort=False):
        counts = rows.groupby(others)[column].transform("nunique")
        parts.append(rows[counts == counts.max()] if counts.max() > 2 else rows.head(0))
    return pd.concat(parts)


def exponent(rows: pd.DataFrame, x: str, y: str) -> Line:
    return fit_line(rows[x].map(math.log), rows[y].astype(float).map(math.log))


def times(frame: pd.DataFrame, axis: str, column: str, mode: str) -> Claim:
    """Whether a mode's time grows no faster than the MACs: the interval of its exponent reaches down to theirs."""
    texts, holding, y = [], 0, f"latency_{mode}_ms"
    for module, rows in frame[frame[y].notna()].groupby("module", sort=False):
        if rows[column].nunique() > 2:
            time, macs = exponent(rows, column, y), exponent(rows, column, "macs")
            texts.append(f"{module} {time.slope:.2f} [{time.low:.2f}, {time.high:.2f}] (MACs {macs.slope:.2f})")
            holding += time.low <= macs.slope
    claim = f"Time ({mode}) grows with {axis} no faster than MACs"
    holds = f"for {holding} of {len(texts)}" if texts else "not measured"
    return claim, "; ".join(texts) or "no times in this run", holds
