"""Published numbers beside ours, and the unit in which both are shown."""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import pandas as pd

from ctxbench.model.metric import Quantity, Unit
from ctxbench.model.metrics import quantities
from ctxbench.model.published import Printed, Published

from .run_data import RunData

PREFIXES = ("", "K", "M", "G", "T", "P")


def with_published(run: RunData) -> pd.DataFrame:
    """The records with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    `published_row` is the name of the published row that a record belongs to: of its module, network and shape, if it
    names one, in float32, with the settings that it names and else the module's default ones. What is measured has no
    ratio: it was taken on another device. A time stands beside a predicted one only if that is of the device that the
    paper measured on.
    """
    frame, table = run.frame.copy(), run.published
    records = zip(frame["module"], frame["every"], frame["changed"], frame["network"], frame["shape"], strict=True)
    frame["published_row"] = [_row_of(table, *record) for record in records]
    sheets = run.meta.get("sheets") or {}
    elsewhere = frame["device"].isin([n for n in sheets if table and sheets[n]["title"] != table.device])
    fits = frame["dtype"] == "float32"
    for key, quantity in quantities().items():
        found = [table.rows[row].printed.get(key) if table and row else None for row in frame["published_row"]]
        own = fits & ~elsewhere if quantity.origin == "measured" else fits
        frame[f"{key}_published"] = pd.Series(found, frame.index, dtype="string").where(own).astype("string")
        if quantity.origin == "measured" or table is None:
            frame[f"{key}_ratio"] = pd.Series(pd.NA, frame.index, dtype="Float64")
            continue
        printed = [None if pd.isna(text) else float(in_ones(table, key, text)) for text in frame[f"{key}_published"]]
        values = pd.Series(printed, frame.index, dtype="Float64")
        frame[f"{key}_ratio"] = (frame[quantity.column].astype("Float64") / values).where(values > 0)
    return frame


def _row_of(
    table: Published | None, module: str, hparams: Mapping[str, Any], changed: str, network: str, shape: str
) -> str:
    """The name of the published row that a record belongs to, of several that with most settings; "" for none."""
    if table is None:
        return ""
    found = {}
    for name, row in table.rows.items():
        own = table.shape_of(name)
        fits = (row.block.rpartition(":")[2], row.network) == (module, network or "")
        fits &= own is None or shape == "x".join(map(str, own))
        same = all(str(hparams.get(key)) == str(value) for key, value in row.settings.items())
        if fits and same and {*changed.split()} <= row.settings.keys():
            found[name] = len(row.settings)
    return max(found, key=lambda name: found[name], default="")


def in_ones(table: Published, key: str, text: str) -> Fraction:
    """A figure of the table in units of one."""
    figure = Printed.parse(text)
    return figure.value * figure.factor(table.unit(key))


def unit_of(run: RunData, quantity: Quantity, frame: pd.DataFrame) -> Unit:
    """The unit of a quantity: the published one; where nothing published is shown, a prefix that fits the numbers."""
    unit = run.published.unit(quantity.key) if run.published else quantity.unit
    if not is_prefix(unit) or frame[f"{quantity.key}_published"].notna().any():
        return unit
    return scaled_unit(frame[quantity.column].dropna().astype(float))


def is_prefix(unit: Unit) -> bool:
    """True if the unit is a bare prefix, `M = 10^6` or `Mi = 2^20`: it has to be explained, and may be scaled."""
    return bool(unit.symbol) and unit.symbol.removesuffix("i") in PREFIXES


def scaled_unit(values: Iterable[float]) -> Unit:
    """The prefix, a power of 1000, with which the largest value has one to three digits before the point."""
    largest = max((v for v in values if math.isfinite(v)), default=0.0)
    chosen = Unit("")
    for power, symbol in enumerate(PREFIXES):
        candidate = Unit(symbol, 10, power * 3)
        if candidate.factor <= largest:
            chosen = candidate
    return chosen
