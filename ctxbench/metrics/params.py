"""Parameters: the number of elements of all of a module's parameters."""

from typing import TYPE_CHECKING

from ctxbench.base.notes import WRAPPED, Note
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, Unit

if TYPE_CHECKING:
    from torch import nn


def count_params(module: "nn.Module") -> int:
    """Number of scalars in all parameters of `module`, trainable and frozen.

    Buffers (running statistics, bases that are no parameters) are not counted; a parameter shared by several submodules
    counts once. Parameters on the meta device count like any other.
    """
    return sum(parameter.numel() for parameter in module.parameters())


def count(measurement: Measurement) -> None:
    """Report the count, with a note where the declared closed form differs, or a block takes another layout."""
    from ctxbench.meta.built import without_data  # imports torch
    from ctxbench.registry.layout import OfMap

    case = measurement.case
    model = measurement.on_meta[0]
    params = count_params(model)
    declared = None if case.network else measurement.entry.closed_form("params", case.shape, case.hparams)
    differs = declared is not None and declared != params
    note = Note("params_differ", {"declared": declared, "counted": params})
    complex_ones = sum(each.numel() for each in model.parameters() if each.is_complex())
    before = params if case.is_known else count_params(without_data(case.build))
    made = [Note("params_made", {"before": before, "after": params}, about="params")] * (before != params)
    counts_once = [Note("complex_params", {"count": complex_ones}, about="params")] * bool(complex_ones)
    wrapped = dict.fromkeys(each.told for each in model.modules() if isinstance(each, OfMap))
    measurement.report(
        {"params": params},
        *[note] * differs,
        *made,
        *counts_once,
        *(Note(WRAPPED, {"takes": each}) for each in wrapped),
    )


METRIC = Metric(
    name="params",
    order=10,
    about="parameters",
    columns=[Column("params", int)],
    quantities=[
        Quantity(
            key="params",
            column="params",
            title="Params",
            unit=Unit("M", 10, 6),
            origin="counted",
            part="counts",
            noun="parameters",
            comparative="fewer",
            exact=True,
            on_front=True,
        )
    ],
    convention="Params: all parameters, trainable and frozen, a shared one once",
    count=count,
)
