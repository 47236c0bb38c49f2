"""Published numbers beside ours, and the unit in which both are shown."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from ctxbench.errors import UsageError
from ctxbench.metrics import quantities
from ctxbench.metrics.base import Quantity, Unit

from .run_data import RunData

PREFIXES = ("", "K", "M", "G", "T", "P")


def with_published(run: RunData) -> pd.DataFrame:
    """The records with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    A published number stands beside rows with the settings that it names, or with the module's default ones, in
    float32, and of the published shape where the suite declares one. What is measured has no ratio: it was taken on
    another device. A time stands beside a predicted one only if that is of the device that the paper measured on.
    """
    frame = run.frame.copy()
    rows: Mapping[str, Mapping[str, str]] = run.published.get("rows") or {}
    names = [_name(*row, rows) for row in zip(frame["module"], frame["every"], frame["changed"], strict=True)]
    sheets = run.meta.get("sheets") or {}
    elsewhere = frame["device"].isin([n for n in sheets if sheets[n]["title"] != run.published.get("device")])
    fits = frame["dtype"] == "float32"
    if run.published.get("shape"):
        fits &= frame["shape"] == "x".join(map(str, run.published["shape"]))
    for key, quantity in quantities().items():
        printed = pd.Series([rows.get(name, {}).get(key) for name in names], frame.index, dtype="string")
        own = fits & ~elsewhere if quantity.origin == "measured" else fits
        frame[f"{key}_published"] = printed.where(own).astype("string")
        if quantity.origin == "measured":
            continue
        values = pd.to_numeric(frame[f"{key}_published"], errors="coerce").astype("Float64")
        here = frame[quantity.column].astype("Float64") / unit_of(run, quantity, frame).factor
        frame[f"{key}_ratio"] = (here / values).where(values > 0)
    return frame


def _name(module: str, hparams: Mapping[str, Any], changed: str, rows: Collection[str]) -> str:
    """The name of the published row that a record belongs to; empty if there is none."""
    texts = {f"{name}={value}" for name, value in hparams.items()}
    differing = {f"{name}={hparams[name]}" for name in changed.split()}
    for name in rows:
        start, bracket, settings = name.partition("(")
        given = {each.strip() for each in settings.rstrip(")").split(",")}
        if bracket and start == module and differing <= given <= texts:
            return name
    return "" if changed else module


def unit_of(run: RunData, quantity: Quantity, frame: pd.DataFrame) -> Unit:
    """The unit of a quantity: the published one; where nothing published is shown, a prefix that fits the numbers."""
    unit = quantity.unit
    written = run.published.get(f"{quantity.key}_unit")
    if written is not None:
        unit = parse_unit(written, f"{run.folder.path / 'run.json'}: published.{quantity.key}_unit")
    if not is_prefix(unit) or frame[f"{quantity.key}_published"].notna().any():
        return unit
    return scaled_unit(frame[quantity.column].dropna().astype(float))


def parse_unit(text: str, where: str) -> Unit:
    """A unit from `G = 10^9`; UsageError names `where` it stands."""
    try:
        return Unit.parse(text)
    except ValueError as error:
        raise UsageError(f"{where} is {text!r}; {error}") from None


def is_prefix(unit: Unit) -> bool:
    """Whether the unit is a bare prefix, `M = 10^6` or `Mi = 2^20`: it has to be explained, and may be scaled."""
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


def decimals_of(printed: str) -> int:
    """Digits after the point of a number as printed."""
    return len(printed.partition(".")[2])


def leading_value(printed: str) -> float | None:
    """The number in a printed figure; None if it is none, such as `-` or `OOM`."""
    try:
        value = float(printed.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
