"""`ctxbench.choose`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES
from ctxbench.devices import has_clock
from ctxbench.engine.cache import CachedExecutor
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import QuietGate
from ctxbench.engine.run import check_installed
from ctxbench.plugins.choose import choice
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


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
) -> Result[list[choice.Candidate]]:
    """Modules that fit into `memory` bytes at an input [B, C, H, W], with their times: all predicted.

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
        executor, found = CachedExecutor(server), []
        peak = choice.peak_with(executor, Plan(suite.file.measure, ["memory"]), mode)
        for each in choice.candidates(suite, mode, executor, shown.stage):
            if largest_batch:
                shown.stage(f"the largest batch of {each.case.title}")
                each = replace(each, batch=choice.largest_batch(each, memory, peak))
            found.append(each)
    return Result(found, tuple(choice.answer(found, memory, devices, mode)))
