"""Rates derived from latency: images a second, MAC/s, and their share of the matmul rate."""

from dataclasses import replace

import pandas as pd

from ctxbench.mode import MODES

from .cells import Filled
from .numbers import significant
from .table import Cell, Column, Footnotes

# The key of the column that the matmul rate belongs to.
ACHIEVED = "achieved"
ABOVE = (
    "More than the large matrix product that it is compared with: the product of this dtype is slow on this device, or "
    "the module computes in another dtype."
)


def rate_columns(frame: pd.DataFrame, notes: Footnotes) -> list[Filled]:
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
            cells = [_share_cell(value, notes) for value in share]
            found.append((_column("achieved_share", "Infer", "of matmul"), cells))
    return found


def _column(key: str, group: str, header: str) -> Column:
    return Column(key, group, header, "measured", "rate")


def _share_cell(share: float, notes: Footnotes) -> Cell:
    cell = _cell(share, f"{share:.0%}")
    return replace(cell, notes=(notes.number(ABOVE),)) if share > 1 else cell


def _cell(value: float, text: str = "") -> Cell:
    return Cell() if pd.isna(value) else Cell(text or significant(value), float(value), detail=f"{value:.6g}")
