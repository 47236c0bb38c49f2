"""Multiply-accumulates of a forward pass and of a training step, under torchprofile's convention."""

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ctxbench.base.mode import Mode
from ctxbench.base.notes import LACKS, Note
from ctxbench.base.reasons import said
from ctxbench.devices import has_clock
from ctxbench.model.metric import Column, ColumnValues, Measurement, Metric, Quantity, Unit
from ctxbench.plugins.memory.metric import pass_of

if TYPE_CHECKING:
    from ctxbench.model.case import Case
    from ctxbench.plugins.macs.counter import MacCount

COUNTERS = {
    "ctxbench": "torchprofile's convention, counted by ctxbench on the meta device",
    "torchprofile": "counted by torchprofile on a real forward pass",
}
STEP = "forward and y.sum().backward(), the input without gradient, each operator that runs counted by ctxbench"
# Two counts that differ by less than this share are taken for the same.
AGREES = 1e-5


def count(measurement: Measurement) -> None:
    """Report the count, the matrix products alone and the closed form, with a note where they disagree."""
    import torch

    from ctxbench.meta.autocast import Autocast
    from ctxbench.plugins.macs.counter import count_macs, count_macs_torchprofile

    case, entry = measurement.case, measurement.entry
    formula = None if case.network else entry.closed_form("macs", case.shape, case.hparams)
    try:
        if measurement.counter == "torchprofile":
            counted = count_macs_torchprofile(case.build(), torch.randn(case.shape))
        else:
            autocast = Autocast(case.device, case.autocast_dtype)
            own = partial(count_macs, *measurement.on_meta, autocast=autocast)
            counted = measurement.once("macs", lambda: _recorded(measurement, "infer") or own())
    except Exception as error:
        measurement.report({"macs_formula": formula})
        measurement.mark_missing(
            ["macs", "macs_train"], Note("no_macs", {"reason": _reason(error, case, measurement.counter)}, about="macs")
        )
        return
    values = {
        "macs": counted.macs,
        "macs_matmul": counted.macs_matmul,
        "macs_formula": formula,
        "macs_counter": measurement.counter,
        "macs_uncounted": json.dumps(counted.uncounted),
    }
    measurement.report(values, *_notes("macs", counted), *_disagreement(counted.macs, formula, counted.uncounted))
    _count_step(measurement)


def _count_step(measurement: Measurement) -> None:
    """Report the count of a training step, by ctxbench's own counter, or why there is none."""
    from ctxbench.plugins.macs.watch import UncountableError

    try:
        counted = step_macs(measurement)
    except UncountableError as error:
        measurement.mark_missing(["macs_train"], Note("no_macs_train", {"reason": str(error)}, about="macs_train"))
        return
    values = {"macs_train": counted.macs, "macs_train_uncounted": json.dumps(counted.uncounted)}
    measurement.report(values, *_notes("macs_train", counted))


def step_macs(measurement: Measurement) -> "MacCount":
    """The count of a training step, by ctxbench's own counter. UncountableError, with the reason, if there is none."""
    from ctxbench.meta.autocast import Autocast
    from ctxbench.plugins.macs.training import count_training_macs

    autocast = Autocast(measurement.case.device, measurement.case.autocast_dtype)
    own = partial(count_training_macs, *measurement.on_meta, autocast=autocast)
    return measurement.once("macs_train", lambda: _recorded(measurement, "train") or own())


def _recorded(measurement: Measurement, mode: Mode) -> "MacCount | None":
    """The count of the pass that is recorded for memory; None where that one is not of the module's own operators."""
    from ctxbench.plugins.macs.counter import recorded
    from ctxbench.plugins.memory.convention import UnpredictableError

    if measurement.case.autocast_dtype and measurement.case.device == "cpu":
        return None  # with other casts
    try:
        return recorded(pass_of(measurement, mode, "cuda"))
    except UnpredictableError:
        return None


def _notes(key: str, counted: "MacCount") -> list[Note]:
    """Notes on the work that a count does not include, and on how it was counted."""
    remarks = [Note("remark", {"text": f"{each}."}, about=key) for each in counted.remarks]
    return [Note(LACKS, {"work": counted.lacks}, about=key)] * bool(counted.lacks) + remarks


def _reason(error: Exception, case: "Case", counter: str) -> str:
    """The reason why there is no count; the error itself where no pass on a device will show it."""
    from ctxbench.plugins.macs.watch import UncountableError

    if isinstance(error, UncountableError):
        return str(error)
    if not has_clock(case.device):
        raise error
    place = "on the meta device" if counter == "ctxbench" else f"in {counter}"
    return f"{case.module} fails {place}: {said(error)}"


def _disagreement(macs: int, formula: int | None, uncounted: Mapping[str, int]) -> list[Note]:
    if formula is None or abs(macs - formula) <= AGREES * max(macs, formula):
        return []
    values = {"counted": macs, "declared": formula, "operators": [*uncounted]}
    return [Note("macs_differ_uncounted" if uncounted else "macs_differ", values, about="macs")]


def convention(values: ColumnValues) -> str:
    """The counters that were used, with their conventions, and what a training step is."""
    used = [COUNTERS.get(name, name) for name in values("macs_counter")] or [COUNTERS["ctxbench"]]
    step = f"; train: {STEP}" if values("macs_train_uncounted") else ""
    return f"MACs: {'; '.join(used)}{step}"


METRIC = Metric(
    name="macs",
    order=20,
    about="multiply-accumulates of a forward pass and of a training step",
    columns=[
        Column("macs", int),
        Column("macs_counter", str),
        Column("macs_matmul", int),
        Column("macs_formula", int),
        Column("macs_uncounted", str, json=dict),
        Column("macs_train", int),
        Column("macs_train_uncounted", str, json=dict),
    ],
    quantities=[
        Quantity(
            key="macs",
            column="macs",
            title="MACs",
            unit=Unit("G", 10, 9),
            origin="counted",
            part="counts",
            noun="MACs",
            comparative="fewer",
            exact=True,
            on_front=True,
            method_column="macs_counter",
        ),
        Quantity(
            key="macs_train",
            column="macs_train",
            title="MACs, train",
            unit=Unit("G", 10, 9),
            origin="counted",
            part="counts",
            noun="training MACs",
            comparative="fewer",
            exact=True,
        ),
    ],
    convention=convention,
    count=count,
)
