"""The quantities that papers print and runs measure: their columns, their units, published beside ours."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from .numbers import Unit, parse_unit, scaled_unit
from .runs import RunData
from .table import Origin

_MEMORY_UNIT = Unit("MiB", 2, 20)


@dataclass(frozen=True)
class Quantity:
    """One published column and what stands beside it: `here` is compared with it, `also` is only shown."""

    key: str
    title: str
    part: str
    origin: Origin
    here: str
    also: str | None = None

    @property
    def metric(self) -> str:
        return self.key.partition("_")[0]


QUANTITIES = (
    Quantity("params", "Params", "counts", "counted", "params"),
    Quantity("macs", "MACs", "counts", "counted", "macs"),
    Quantity(
        "memory_train", "Memory, train", "memory", "predicted", "memory_train_predicted_bytes", "memory_train_bytes"
    ),
    Quantity(
        "memory_infer", "Memory, infer", "memory", "predicted", "memory_infer_predicted_bytes", "memory_infer_bytes"
    ),
    Quantity("latency_train", "Time, train", "time", "measured", "latency_train_ms"),
    Quantity("latency_infer", "Time, infer", "time", "measured", "latency_infer_ms"),
)


def with_published(run: RunData) -> pd.DataFrame:
    """The records with `<quantity>_published` (as printed) and `<quantity>_ratio` (here over published).

    A published number stands beside rows with the module's own hyper-parameters, in float32, and of the published shape
    where the suite declares one. Times have no ratio: they were taken on another device.
    """
    frame = run.frame.copy()
    rows: Mapping[str, Mapping[str, str]] = run.published.get("rows") or {}
    fits = (frame["hparams"] == "{}") & (frame["dtype"] == "float32")
    if run.published.get("shape"):
        fits &= frame["shape"] == "x".join(map(str, run.published["shape"]))
    for quantity in QUANTITIES:
        printed = frame["module"].map({module: row.get(quantity.key) for module, row in rows.items()})
        frame[f"{quantity.key}_published"] = printed.where(fits).astype("string")
        if quantity.part == "time":
            continue
        values = pd.to_numeric(frame[f"{quantity.key}_published"], errors="coerce").astype("Float64")
        here = frame[quantity.here].astype("Float64") / unit_of(run, quantity, frame).factor
        frame[f"{quantity.key}_ratio"] = (here / values).where(values > 0)
    return frame


def unit_of(run: RunData, quantity: Quantity, frame: pd.DataFrame) -> Unit:
    """The unit of a column: the published one, or one of the same base that fits where nothing published is shown."""
    if quantity.part != "counts":
        return _MEMORY_UNIT
    default = {"params": "M = 2^20", "macs": "G = 10^9"}[quantity.key]
    where = f"{run.folder.path / 'run.json'}: published.{quantity.key}_unit"
    unit = parse_unit(run.published.get(f"{quantity.key}_unit", default), where)
    printed = frame.get(f"{quantity.key}_published")
    if printed is not None and printed.notna().any():
        return unit
    return scaled_unit(unit, frame[quantity.here].dropna().astype(float))


def plain_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """The numbers behind the table, for CSV: what names a case, then each quantity published, here, ratio, interval."""
    names = ["module", "title", "family", "hparams", "batch", "channels", "height", "width"]
    names += ["dtype", "memory_format", "execution", "threads", "device", "status", "message"]
    for quantity in QUANTITIES:
        names += [f"{quantity.key}_published", quantity.here, f"{quantity.key}_ratio"]
        if quantity.part == "time":
            names += [quantity.here.removesuffix("ms") + end for end in ("low_ms", "high_ms", "samples", "stop")]
        names += [quantity.also] if quantity.also else []
    return frame[[name for name in names if name in frame.columns]]
