"""Published numbers beside ours, and the unit in which both are shown."""

from collections.abc import Mapping

import pandas as pd

from ctxbench.metrics import quantities
from ctxbench.metrics.base import Quantity, Unit

from .numbers import is_prefix, parse_unit, scaled_unit
from .runs import RunData


def with_published(run: RunData) -> pd.DataFrame:
    """The records with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    A published number stands beside rows with the module's own hyper-parameters, in float32, and of the published shape
    where the suite declares one. What is measured has no ratio: it was taken on another device.
    """
    frame = run.frame.copy()
    rows: Mapping[str, Mapping[str, str]] = run.published.get("rows") or {}
    fits = (frame["hparams"] == "{}") & (frame["dtype"] == "float32")
    if run.published.get("shape"):
        fits &= frame["shape"] == "x".join(map(str, run.published["shape"]))
    for key, quantity in quantities().items():
        printed = frame["module"].map({module: row.get(key) for module, row in rows.items()})
        frame[f"{key}_published"] = printed.where(fits).astype("string")
        if quantity.origin == "measured":
            continue
        values = pd.to_numeric(frame[f"{key}_published"], errors="coerce").astype("Float64")
        here = frame[quantity.column].astype("Float64") / unit_of(run, quantity, frame).factor
        frame[f"{key}_ratio"] = (here / values).where(values > 0)
    return frame


def unit_of(run: RunData, quantity: Quantity, frame: pd.DataFrame) -> Unit:
    """The unit of a quantity: the published one; where nothing published is shown, a prefix that fits the numbers."""
    unit = quantity.unit
    written = run.published.get(f"{quantity.key}_unit")
    if written is not None:
        unit = parse_unit(written, f"{run.folder.path / 'run.json'}: published.{quantity.key}_unit")
    if not is_prefix(unit) or frame[f"{quantity.key}_published"].notna().any():
        return unit
    return scaled_unit(unit, frame[quantity.column].dropna().astype(float))
