"""`ctxbench.predict_time`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES
from ctxbench.base.number import Number
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.case import Case
from ctxbench.plugins.predict import LOSSES, OPTIMIZERS
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def predict_time(
    module: "Module",
    shape: Sequence[int] | str | None,
    target: str,
    *,
    mode: str = "infer",
    loss: str = LOSSES[0],
    optimizer: str = "",
    hparams: Mapping[str, Any] | None = None,
    **conditions: Any,
) -> Result[Number]:
    """Predict the time of a module's pass in ms on a device with a data sheet, such as `a100-40gb`, with its 80 % band.

    A training step has a `loss` of the output, one of `LOSSES`, and the step of an `optimizer` if one of `OPTIMIZERS`
    is named; `conditions` are as in `predict_memory`. Raises UsageError for a wrong argument, and for a pass that
    cannot be predicted.
    """
    with IsolatedLoader() as loader:
        case = api.case_of(module, hparams, shape=shape, **conditions)
        return time_of(loader, case, mode, target, loss, optimizer)


def time_of(loader: IsolatedLoader, case: Case, mode: str, target: str, loss: str, optimizer: str) -> Result[Number]:
    """Result of `predict_time` for a case."""
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    if optimizer and optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    if mode != "train" and (optimizer or loss != LOSSES[0]):
        raise UsageError("--loss and --optimizer are of a training step: add --mode train")
    return api.shown(loader, case, "time", mode, sheet(target), loss, optimizer)
