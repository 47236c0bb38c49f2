"""Published numbers beside ours, and the unit in which both are shown."""

import json
from collections.abc import Collection, Mapping

import pandas as pd

from ctxbench import registry
from ctxbench.metrics import quantities
from ctxbench.metrics.base import Quantity, RecordRow, Unit

from ..run_data import RunData
from .numbers import is_prefix, parse_unit, scaled_unit


def with_published(run: RunData) -> pd.DataFrame:
    """The records with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    A published number stands beside rows with the settings that it names, or with the module's default ones, in
    float32, and of the published shape where the suite declares one. What is measured has no ratio: it was taken on
    another device.
    """
    frame = run.frame.copy()
    rows: Mapping[str, Mapping[str, str]] = run.published.get("rows") or {}
    names = [_name(row, rows) for row in frame.to_dict("records")]
    fits = frame["dtype"] == "float32"
    if run.published.get("shape"):
        fits &= frame["shape"] == "x".join(map(str, run.published["shape"]))
    for key, quantity in quantities().items():
        printed = pd.Series([rows.get(name, {}).get(key) for name in names], frame.index, dtype="string")
        frame[f"{key}_published"] = printed.where(fits).astype("string")
        if quantity.origin == "measured":
            continue
        values = pd.to_numeric(frame[f"{key}_published"], errors="coerce").astype("Float64")
        here = frame[quantity.column].astype("Float64") / unit_of(run, quantity, frame).factor
        frame[f"{key}_ratio"] = (here / values).where(values > 0)
    return frame


def _name(row: RecordRow, rows: Collection[str]) -> str:
    """The name of the published row that a record belongs to; empty if there is none."""
    module, hparams = str(row["module"]), json.loads(row["hparams"])
    texts = {f"{name}={value}" for name, value in hparams.items()}
    for name in rows:
        start, bracket, settings = name.partition("(")
        if bracket and start == module and texts == {each.strip() for each in settings.rstrip(")").split(",")}:
            return name
    known = registry.get(module).hyperparameters if hparams and module in registry.names() else ()
    defaults = {each.name: each.default for each in known}
    return module if all(name in defaults and defaults[name] == value for name, value in hparams.items()) else ""


def unit_of(run: RunData, quantity: Quantity, frame: pd.DataFrame) -> Unit:
    """The unit of a quantity: the published one; where nothing published is shown, a prefix that fits the numbers."""
    unit = quantity.unit
    written = run.published.get(f"{quantity.key}_unit")
    if written is not None:
        unit = parse_unit(written, f"{run.folder.path / 'run.json'}: published.{quantity.key}_unit")
    if not is_prefix(unit) or frame[f"{quantity.key}_published"].notna().any():
        return unit
    return scaled_unit(frame[quantity.column].dropna().astype(float))
