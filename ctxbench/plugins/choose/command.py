"""`ctxbench choose`: which modules fit, and which of them is fastest."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ctxbench.base import limits
from ctxbench.base.errors import UsageError
from ctxbench.cli.options import Given, split
from ctxbench.cli.printing import render, reporter
from ctxbench.cli.signature import command_of
from ctxbench.plugins.choose import function

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def size_in_bytes(text: str) -> int:
    """`2GiB` or `1500 MB` in bytes. UsageError unless it is a positive size with its unit."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", text.strip())
    if found and not found[2]:
        raise UsageError(f"--memory {text} has no unit; write it with one, such as 2GiB or 2000MiB")
    unit = next((size for name, size in UNITS.items() if found and name.lower() == found[2].lower()), None)
    if not found or unit is None or not float(found[1]):
        raise UsageError(f"--memory {text!r} is not a size, such as 2GiB or 1500MiB")
    limits.MEMORY_GIB.check_option("--memory", float(found[1]) * unit / 2**30)
    return int(float(found[1]) * unit)


Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Available memory, such as 2GiB; default: that of the device with the least."),
]
ShapeOption = Annotated[str | None, typer.Option(metavar="B,C,H,W", help="Input shape.")]
Devices = Annotated[str, typer.Option(metavar="DEVICE[,DEVICE]", help="Such as a100-40gb,t4, or a TOML file.")]


@command_of(function.choose, memory=Given(Memory, size_in_bytes), shape=ShapeOption, device=Given(Devices, split))
def choose(asked: Mapping[str, Any]) -> None:
    """Print which modules fit into a memory at an input, the fastest first. All is predicted; nothing is measured."""
    for part in function.choose(**asked, progress=reporter()).parts:
        render(part)
