"""`ctxbench choose`: which modules fit, and which of them is fastest."""

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from ctxbench.base import limits
from ctxbench.base.errors import UsageError
from ctxbench.cli.options import Modules, OneMode, Settings, Texts, names, overrides_of, with_conditions
from ctxbench.cli.printing import gate_progress, render

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
    from ctxbench.model import hparams as settings
    from ctxbench.plugins.choose import function

    found = function.choose(
        _bytes(memory),
        shape,
        [each.strip() for each in device.split(",") if each.strip()],
        mode=mode,
        modules=names(modules),
        hparams=settings.parse(chosen or []),
        largest_batch=batch,
        progress=gate_progress(),
        **overrides_of(conditions).conditions,
    )
    for part in found.parts:
        render(part)


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
