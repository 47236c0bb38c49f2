"""`ctxbench.choose`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxbench import api
from ctxbench.base import limits
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES
from ctxbench.cli.options import HyperParameters, Modules, OneMode, condition_options, names, split
from ctxbench.cli.signature import Given
from ctxbench.devices import has_clock
from ctxbench.engine.cache import CachedExecutor
from ctxbench.engine.client import ForkServer
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import QuietGate
from ctxbench.plugins.choose import choice
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.results.plan import check_installed
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def size_in_bytes(text: str) -> int:
    """`2GiB` or `1500 MB` in bytes. UsageError unless it is a positive size with its unit."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found and not found[2]:
        raise UsageError(f"--memory {text} has no unit; write it with one, such as 2GiB or 2000MiB")
    unit = next((size for name, size in UNITS.items() if found and name.lower() == found[2].lower()), None)
    if not found or unit is None or not float(found[1]):
        raise UsageError(f"--memory {text!r} is not a size, such as 2GiB or 1500MiB")
    limits.MEMORY_GIB.check_option("--memory", float(found[1]) * unit / 2**30)
    return int(float(found[1]) * unit)


Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory that is there, such as 2GiB or 1500MiB.")]
OneShape = Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")]
Devices = Annotated[str, typer.Option(metavar="DEVICE[,DEVICE]", help="Such as a100-40gb,t4, or a TOML file.")]


def choose(
    memory: Annotated[int, Given(Memory, size_in_bytes)],
    shape: Annotated[Sequence[int] | str, Given(OneShape)],
    device: Annotated[Sequence[str] | str, Given(Devices, split)],
    *,
    mode: OneMode = "train",
    modules: Annotated["Sequence[Module] | Module | None", Given(Modules, names)] = None,
    hparams: HyperParameters = None,
    largest_batch: Annotated[bool, typer.Option("--largest-batch", help="Also the largest batch that fits.")] = False,
    progress: QuietGate | None = None,
    **conditions: Annotated[Any, condition_options("dtype", "network")],
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
