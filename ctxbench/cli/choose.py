"""`ctxbench choose`: which modules fit, and which of them is fastest."""

import re
from dataclasses import replace
from typing import Annotated

import typer

from ctxbench import limits
from ctxbench.cli.options import Dtype, Modules, Network, Settings, names, overrides_of
from ctxbench.cli.printing import render
from ctxbench.errors import UsageError, unknown
from ctxbench.mode import MODES, Mode
from ctxbench.notes import Note
from ctxbench.terminal import say

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def choose(
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory that is there, such as 2GiB or 1500MiB.")],
    shape: Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")],
    device: Annotated[str, typer.Option(metavar="DEVICE[,DEVICE]", help="Such as a100-40gb,t4, or a TOML file.")],
    mode: Annotated[str, typer.Option(help="train or infer.")] = "train",
    modules: Modules = None,
    dtype: Dtype = None,
    network: Network = None,
    chosen: Settings = None,
    batch: Annotated[bool, typer.Option("--largest-batch", help="Also the largest batch that fits.")] = False,
) -> None:
    """Print which modules fit into a memory at an input, the fastest first. All is predicted; nothing is measured."""
    from ctxbench import choose as choosing
    from ctxbench.cli.describe import chosen_modules
    from ctxbench.devices import has_clock
    from ctxbench.devices.sheet import sheet
    from ctxbench.engine.case import Plan
    from ctxbench.engine.client import ForkServer
    from ctxbench.engine.counted import Counted
    from ctxbench.suite import settings
    from ctxbench.suite.read import load

    limit = _bytes(memory)
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    asked = [each.strip() for each in device.split(",") if each.strip()]
    for name in asked or [""]:
        if has_clock(name):
            raise UsageError(
                f"--device {name}: times are predicted, for devices by their data sheets, such as a100-40gb"
            )
        sheet(name)
    overrides = replace(
        overrides_of([shape], dtype, device, None, None, None, network),
        modules=names(modules) or ["*"],
        hparams=settings.parse(chosen or []),
    )
    suite = load("field", overrides)
    if len(suite.file.axes.dtype) + len(suite.file.axes.network) > 2:
        raise UsageError("choose takes one --dtype and one --network")
    which: Mode = mode
    with ForkServer() as server:
        executor = Counted(server)
        found = list(choosing.candidates(suite, which, executor))
        if batch:
            peak = choosing.peak_with(executor, Plan(suite.file.measure, ["memory"]), which)
            found = [replace(each, batch=choosing.largest_batch(each, limit, peak)) for each in found]
    for part in chosen_modules(found, limit, asked, which, suite.file.axes.shape[0]):
        render(part)
    if suite.file.axes.dtype[0].startswith("autocast"):
        say(str(Note("autocast_cuda")))
    say("Predicted for PyTorch of today; see docs/memory.md and docs/prediction.md.")


def _bytes(text: str) -> int:
    """`2GiB` or `1500 MB` in bytes. UsageError unless it is a positive size with its unit."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found and not found[2]:
        raise UsageError(f"--memory {text} has no unit; write it with one, such as 2GiB or 2000MiB")
    unit = next((size for name, size in UNITS.items() if found and name.lower() == found[2].lower()), None)
    if not found or unit is None or not float(found[1]):
        raise UsageError(f"--memory {text!r} is not a size, such as 2GiB or 1500MiB")
    limits.MEMORY_GIB.check_option("--memory", float(found[1]) * unit / 2**30)
    return int(float(found[1]) * unit)
