"""`ctxbench choose`: which modules fit, and which of them is fastest."""

from collections.abc import Mapping
from typing import Any

from ctxbench.cli.printing import gate_progress, render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.choose import function


@command_of(function.choose)
def choose(asked: Mapping[str, Any]) -> None:
    """Print which modules fit into a memory at an input, the fastest first. All is predicted; nothing is measured."""
    for part in function.choose(**asked, progress=gate_progress()).parts:
        render(part)
