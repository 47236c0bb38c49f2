"""Commands that only predict, as Python functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxbench import api, choice
from ctxbench.case import Case, one_case
from ctxbench.conditions import CONDITIONS
from ctxbench.devices import has_clock
from ctxbench.devices.sheet import sheet
from ctxbench.engine.apart import Apart
from ctxbench.engine.client import ForkServer
from ctxbench.engine.counted import Counted
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import QuietGate
from ctxbench.engine.run import check_installed
from ctxbench.errors import UsageError, unknown
from ctxbench.found import Found
from ctxbench.mode import MODES
from ctxbench.number import Number
from ctxbench.predict import LOSSES, OPTIMIZERS
from ctxbench.report.tables.table import plain_table
from ctxbench.worker.protocol import TellMemory, TellTime

if TYPE_CHECKING:
    from ctxbench.api import Module

# What a peak is predicted for.
TARGETS = ("cuda", "cuda-2020", "cpu")


def choose(
    memory: int,
    shape: Sequence[int] | str,
    device: Sequence[str] | str,
    *,
    mode: str = "train",
    modules: "Sequence[Module] | Module | None" = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    largest_batch: bool = False,
    progress: QuietGate | None = None,
    **conditions: Any,
) -> Found[list[choice.Candidate]]:
    """Which modules fit into `memory` bytes at an input [B, C, H, W], and how fast each is: all predicted.

    `device` names devices with a data sheet, such as `a100-40gb`; `modules` are by default those of the registry;
    `conditions` are `dtype` and `network`. With `largest_batch` the largest B that fits is found, too. Raises
    UsageError for a wrong argument, and for a device whose times are measured.
    """
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    devices = list(dict.fromkeys([device] if isinstance(device, str) else device))
    for name in devices or [""]:
        if has_clock(name):
            raise UsageError(f"device {name}: times are predicted, for devices by their data sheets, such as a100-40gb")
        sheet(name)
    suite = api.suite_of("field", modules or ["*"], hparams, {**conditions, "shape": shape, "device": devices})
    check_installed(suite.file, static=True)
    with progress or QuietGate() as shown, ForkServer() as server:
        executor, found = Counted(server), []
        peak = choice.peak_with(executor, Plan(suite.file.measure, ["memory"]), mode)
        for each in choice.candidates(suite, mode, executor, shown.stage):
            if largest_batch:
                shown.stage(f"the largest batch of {each.case.title}")
                each = replace(each, batch=choice.largest_batch(each, memory, peak))
            found.append(each)
    return Found(found, tuple(choice.answer(found, memory, devices, mode)))


def predict_memory(
    module: "Module",
    shape: Sequence[int] | str | None = None,
    *,
    mode: str = "train",
    target: str = "cuda",
    hparams: Mapping[str, Any] | None = None,
    **conditions: Any,
) -> Found[Number]:
    """Predict the peak memory of a module's pass at an input [B, C, H, W], in bytes, and what would lower it.

    `target` is `cuda`, `cuda-2020` or `cpu`; `conditions` are `dtype`, `memory_format` and `network`. Raises UsageError
    for a wrong argument, and for a pass that cannot be predicted.
    """
    with Apart() as apart:
        return memory_of(apart, _case(module, hparams, shape=shape, **conditions), mode, target)


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
) -> Found[Number]:
    """Predict the time of a module's pass in ms on a device with a data sheet, such as `a100-40gb`, with its 80 % band.

    A training step has a `loss` of the output, one of `LOSSES`, and the step of an `optimizer` if one of `OPTIMIZERS`
    is named; `conditions` are as in `predict_memory`. Raises UsageError for a wrong argument, and for a pass that
    cannot be predicted.
    """
    with Apart() as apart:
        case = _case(module, hparams, shape=shape, **conditions)
        return time_of(apart, case, mode, target, loss, optimizer)


def memory_of(apart: Apart, case: Case, mode: str, target: str, plot: str | None = None) -> Found[Number]:
    """What `predict_memory` finds, of a case; its pass is drawn into the file `plot`."""
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if target not in TARGETS:
        raise unknown("device", target, TARGETS)
    return _told(apart, TellMemory(case, mode, target, plot))


def time_of(apart: Apart, case: Case, mode: str, target: str, loss: str, optimizer: str) -> Found[Number]:
    """What `predict_time` finds, of a case."""
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    if optimizer and optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    if mode != "train" and (optimizer or loss != LOSSES[0]):
        raise UsageError("--loss and --optimizer are of a training step: add --mode train")
    return _told(apart, TellTime(case, mode, sheet(target), loss, optimizer))


def _told(apart: Apart, task: TellMemory | TellTime) -> Found[Number]:
    """What a child tells of a case; the number is in what it says first."""
    told: list[Any] = []
    apart.tell(task, task.case, told.append)
    parts = [plain_table(each.columns, each.rows) if each.columns else each.text for each in told]
    return Found(told[0].value, tuple(parts))


def _case(module: "Module", hparams: Mapping[str, Any] | None, **conditions: Any) -> Case:
    """A module under one value of each condition. UsageError for a wrong one."""
    given = {name: value for name, value in conditions.items() if value is not None}
    for name, value in given.items():
        if name not in CONDITIONS:
            raise unknown("condition", name, CONDITIONS)
        given[name] = CONDITIONS[name].checked(value)
    return one_case((api.module_names(module) or [""])[0], given, hparams or {})
