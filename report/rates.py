"""Rates derived from latency: images a second, MAC/s, and their share of the matmul rate."""

import pandas as pd

from ctxbench.mode import MODES

from .cells import Filled
from .numbers import significant
from .table import Cell, Column

# The key of the column that the matmul rate belongs to.
ACHIEVED = "achieved"


def rate_columns(frame: pd.DataFrame) -> list[Filled]:
    """For each mode that was timed: throughput and, for inference, what the counted MACs achieve."""
    found = []
    for mode in reversed(MODES):
        seconds = frame[f"latency_{mode}_ms"] / 1e3
        if seconds.notna().any():
            images = (frame["batch"].astype("Float64") / seconds).astype(float)
            found.append((_column(f"throughput_{mode}", "Images/s", mode), [_cell(value) for value in images]))
    achieved = (frame["macs"].astype("Float64") / (frame["latency_infer_ms"] / 1e3)).astype(float)
    if achieved.notna().any():
        found.append((_column(ACHIEVED, "Infer", "GMAC/s"), [_cell(value / 1e9) for value in achieved]))
        share = achieved / frame["matmul_macs_per_s"]
        if share.notna().any():
            cells = [_cell(value, f"{value:.0%}") for value in share]
            found.append((_column("achieved_share", "Infer", "of matmul"), cells))
    return found


def _column(key: str, group: str, header: str) -> Column:
    return Column(key, group, header, "measured", "rate")


def _cell(value: float, text: str = "") -> Cell:
    return Cell() if pd.isna(value) else Cell(text or significant(value), float(value), detail=f"{value:.6g}")
