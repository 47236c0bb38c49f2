"""Metrics, one a file: every file of `ctxbench/metrics/` that declares a `METRIC`, and of plugins.

Imports no torch: the parent, the suites and the report read names, titles, units and columns from here.
"""

import importlib
import json
import math
import pkgutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from ctxbench.base.errors import unknown
from ctxbench.base.notes import LACKS, UNMEASURED
from ctxbench.base.number import Number, kernels_alone, reason_unknown
from ctxbench.model.case import Measure
from ctxbench.model.metric import Metric, Quantity, RecordRow
from ctxbench.plugin import loaded

# Named as text: its files import this one.
FOLDER = "ctxbench.metrics"


@cache
def metrics() -> dict[str, Metric]:
    """All metrics by name, in the order of tables. ValueError if two files take the same name, key or column."""
    folder = importlib.import_module(FOLDER)
    files = [importlib.import_module(f"{FOLDER}.{info.name}") for info in pkgutil.iter_modules(folder.__path__)]
    declared: list[Metric] = [file.METRIC for file in files if hasattr(file, "METRIC")]
    return in_order([*declared, *loaded("metrics")])


def in_order(declared: list[Metric]) -> dict[str, Metric]:
    """The metrics by name, by `order`; ValueError for a name, key or column that is taken."""
    taken: dict[str, str] = {}
    for metric in declared:
        names = [f"metric {metric.name}"]
        names += [f"quantity {quantity.key}" for quantity in metric.quantities]
        names += [f"column {column.name}" for column in metric.columns]
        names += [f"column {quantity.column}" for quantity in metric.quantities if quantity.derive]
        names += [f"setting {key}" for key in _settings(metric)]
        for name in names:
            if name in taken:
                raise ValueError(f"The {name} is declared twice, by the metrics {taken[name]} and {metric.name}.")
            taken[name] = metric.name
    return {metric.name: metric for metric in sorted(declared, key=lambda metric: (metric.order, metric.name))}


def _settings(metric: Metric) -> Iterable[str]:
    """The keys of a metric's settings. ValueError for one that no suite could give it."""
    keys = metric.settings.model_fields if metric.settings else {}
    for key in keys:
        if not key.startswith(f"{metric.name}_") or key in Measure.model_fields:
            raise ValueError(
                f"The setting {key} of the metric {metric.name} must begin with {metric.name}_ and be no key that "
                "[measure] has without it."
            )
    return keys


def wanted(names: Collection[str]) -> list[Metric]:
    """The metrics of these names, and those that need not be asked for."""
    return [metric for name, metric in metrics().items() if name in names or not metric.asked_for]


@cache
def quantities() -> dict[str, Quantity]:
    """All quantities by key, in the order of tables."""
    return {quantity.key: quantity for metric in metrics().values() for quantity in metric.quantities}


def stored_quantities() -> list[Quantity]:
    """The quantities that records hold; the others derive from them."""
    return [quantity for quantity in quantities().values() if not quantity.derive]


def quantity(key: str) -> Quantity:
    """The quantity of a key. UsageError with the nearest name if there is none."""
    if key not in quantities():
        raise unknown("quantity", key, quantities())
    return quantities()[key]


def read_number(row: RecordRow, quantity: Quantity, column: str = "") -> Number | None:
    """A quantity of a record, from `column` if it is given; None if it is not known.

    A quantity that derives from a time has the interval and the rounds of that time.
    """
    value = row[column or quantity.column]
    if value is None:
        return None
    if derive := quantity.derive:
        time = read_number(row, quantities()[derive.source])
        made = time and time.map_monotonic(lambda ms: derive.value(row, ms))
        return made and replace(made, lacks=_lacks(row, *derive.needs))
    if not quantity.has_interval:
        measured = column and column == quantity.measured_column
        ends = quantity.interval(row) or ()
        return Number(
            value, *ends, origin="measured" if measured else quantity.origin_of(row), lacks=_lacks(row, quantity.key)
        )
    low, high = (row[quantity.detail(end)] for end in ("low_ms", "high_ms"))
    if low is None or high is None:
        low, high = 0.0, math.inf
    origin, errors = quantity.origin_of(row), json.loads(row.get(quantity.detail("errors")) or "{}")
    is_predicted = origin == "predicted"
    why, alone = _not_known(row, quantity.key, (value, low, high), errors) if is_predicted else ("", "")
    return Number(
        *(value, low, high),
        processes=row.get(quantity.detail("processes")) or {},
        others_share=row["others_share"],
        origin=origin,
        errors=errors,
        unknown=why,
        kernels=alone,
    )


def _not_known(row: RecordRow, key: str, band: Sequence[float], errors: Mapping[str, float]) -> tuple[str, str]:
    """Reason to tell no number of a predicted time, and the time of its kernels, by the row's notes on it."""
    notes = {each.code: each.values for each in row.get("notes") or () if each.about == key}
    rest, (value, low, high) = notes.get(UNMEASURED, {"share": 0.0, "classes": ()}), band
    if not (why := reason_unknown(low, high, errors, rest["share"], rest["classes"])):
        return "", ""
    # a note with the time of the host or of the kernels is of a pass that takes as long as its launches
    by_host = next((values for values in notes.values() if {"host_ms", "kernels"} & {*values}), None)
    alone = kernels_alone(value, errors, rest["share"]) if by_host is None else by_host.get("kernels", "")
    return why, alone


def _lacks(row: RecordRow, *keys: str) -> str:
    """Words of a record for what its numbers of these quantities do not include."""
    own = [each for each in row.get("notes") or () if each.code == LACKS and each.about in keys]
    return str(own[0].values.get("work", "")) if own else ""


def static_metrics() -> list[str]:
    """The metrics that need no device and that a suite gets unasked: params, MACs, predicted memory."""
    return [name for name, metric in metrics().items() if metric.count and metric.default]
