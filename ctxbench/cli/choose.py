"""`ctxbench choose`: which modules fit, and which of them is fastest."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from ctxbench import limits
from ctxbench.cli.options import Modules, OneMode, Settings, Texts, mode_of, names, overrides_of, with_conditions
from ctxbench.cli.printing import gate_progress, render
from ctxbench.dtypes import DTYPES
from ctxbench.errors import UsageError
from ctxbench.notes import Note
from ctxbench.terminal import say

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


@with_conditions("dtype", "network")
def choose(
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory that is there, such as 2GiB or 1500MiB.")],
    shape: Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")],
    device: Annotated[str, typer.Option(metavar="DEVICE[,DEVICE]", help="Such as a100-40gb,t4, or a TOML file.")],
    conditions: Mapping[str, Texts],
    mode: OneMode = "train",
    modules: Modules = None,
    chosen: Settings = None,
    batch: Annotated[bool, typer.Option("--largest-batch", help="Also the largest batch that fits.")] = False,
) -> None:
    """Print which modules fit into a memory at an input, the fastest first. All is predicted; nothing is measured."""
    from ctxbench import choose as choosing
    from ctxbench.cli.describe import chosen_modules
    from ctxbench.devices import has_clock
    from ctxbench.devices.sheet import sheet
    from ctxbench.engine.client import ForkServer
    from ctxbench.engine.counted import Counted
    from ctxbench.engine.one_process import Plan
    from ctxbench.engine.run import check_installed
    from ctxbench.suite import settings
    from ctxbench.suite.read import load

    limit = _bytes(memory)
    which = mode_of(mode)
    asked = list(dict.fromkeys(each.strip() for each in device.split(",") if each.strip()))
    for name in asked or [""]:
        if has_clock(name):
            raise UsageError(
                f"--device {name}: times are predicted, for devices by their data sheets, such as a100-40gb"
            )
        sheet(name)
    overrides = replace(
        overrides_of({**conditions, "shape": [shape], "device": device}),
        modules=names(modules) or ["*"],
        hparams=settings.parse(chosen or []),
    )
    suite = load("field", overrides)
    check_installed(suite.file, static=True)
    with gate_progress() as shown, ForkServer() as server:
        executor = Counted(server)
        found = []
        peak = choosing.peak_with(executor, Plan(suite.file.measure, ["memory"]), which)
        for each in choosing.candidates(suite, which, executor, shown.stage):
            if batch:
                shown.stage(f"the largest batch of {each.case.title}")
            found.append(replace(each, batch=choosing.largest_batch(each, limit, peak)) if batch else each)
    for conditions_text in dict.fromkeys(map(choosing.conditions_of, found)):
        own = [each for each in found if choosing.conditions_of(each) == conditions_text]
        for part in chosen_modules(own, limit, asked, f"{which} at {conditions_text}"):
            render(part)
    if any(DTYPES[each.case.dtype].autocast for each in found):
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
