"""Published numbers beside ours, and the unit in which both are shown."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from ctxbench.model.metric import Quantity, RecordRow, Unit
from ctxbench.model.metrics import quantities
from ctxbench.model.published import Printed, Published
from ctxbench.registry import own_name
from ctxbench.results.rows import is_filled
from ctxbench.results.tables import types
from ctxbench.table.numbers import Numbers

from .run_data import TYPES, RunData

PREFIXES = ("", "K", "M", "G", "T", "P")


def with_published(run: RunData) -> list[dict[str, Any]]:
    """The rows with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    `published_row` is the name of the published row that a record belongs to: of its module, network and shape, if it
    names one, in float32, with the settings that it names and else the module's default ones. What is measured has no
    ratio: it was taken on another device. A time stands beside a predicted one only if that is of the device that the
    paper measured on.
    """
    table, sheets = run.published, run.meta.get("sheets") or {}
    elsewhere = {name for name in sheets if table and sheets[name]["title"] != table.device}
    found = []
    for row in run.rows:
        name = _row_of(table, row)
        printed = table.rows[name].printed if table and name and row["dtype"] == "float32" else {}
        own: dict[str, Any] = {"published_row": name}
        for key, quantity in quantities().items():
            is_measured = quantity.origin == "measured"
            text = None if is_measured and row["device"] in elsewhere else printed.get(key)
            paper = float(in_ones(table, key, text)) if table and text is not None and not is_measured else 0.0
            here = row[quantity.column]
            own |= {f"{key}_published": text, f"{key}_ratio": here / paper if here is not None and paper > 0 else None}
        found.append({**row, **own})
    return found


def numbers_with_published(rows: Sequence[RecordRow], names: Iterable[str] = ()) -> Numbers:
    """The columns of rows with published numbers: those named, or all."""
    own = {f"{key}_{what}": kind for key in quantities() for what, kind in (("published", str), ("ratio", float))}
    return Numbers.of_rows(rows, names, TYPES | types() | own)


def _row_of(table: Published | None, record: RecordRow) -> str:
    """The name of the published row that a record belongs to, of several that with most settings; "" for none."""
    if table is None:
        return ""
    found = {}
    for name, row in table.rows.items():
        own = table.shape_of(name)
        fits = (own_name(row.block), row.network) == (record["module"], record["network"] or "")
        fits &= own is None or record["shape"] == "x".join(map(str, own))
        same = all(str(record["every"].get(key)) == str(value) for key, value in row.settings.items())
        if fits and same and {*record["changed"].split()} <= row.settings.keys():
            found[name] = len(row.settings)
    return max(found, key=lambda name: found[name], default="")


def in_ones(table: Published, key: str, text: str) -> Fraction:
    """A figure of the table in units of one."""
    figure = Printed.parse(text)
    return figure.value * figure.factor(table.unit(key))


def unit_of(run: RunData, quantity: Quantity, rows: Sequence[RecordRow]) -> Unit:
    """The unit of a quantity: the published one; where nothing published is shown, a prefix that fits the numbers."""
    unit = run.published.unit(quantity.key) if run.published else quantity.unit
    if not is_prefix(unit) or is_filled(rows, f"{quantity.key}_published"):
        return unit
    return scaled_unit(float(row[quantity.column]) for row in rows if row[quantity.column] is not None)


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
