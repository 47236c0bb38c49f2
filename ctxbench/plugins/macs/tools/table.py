"""A line for each tool: what it prints for a module, and what it does not see."""

from collections import Counter
from collections.abc import Sequence

from torch import nn

from ctxbench.plugins.macs.tools import (
    NAMES,
    calflops,
    deepspeed,
    flop_counter_mode,
    fvcore,
    ptflops,
    thop,
    torchinfo,
    torchprofile,
)
from ctxbench.plugins.macs.tools.calls import Calls, Tool
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.table.shown import Shown

# By the name of the option.
_TOOLS = (
    *(thop.TOOL, thop.AT_32, ptflops.TOOL, ptflops.BY_LAYERS, fvcore.TOOL, fvcore.MMENGINE, torchprofile.TOOL),
    *(calflops.TOOL, deepspeed.TOOL, torchinfo.TOOL, flop_counter_mode.TOOL),
)
TOOLS: dict[str, Tool] = dict(zip(NAMES, _TOOLS, strict=True))


def as_tools(module: nn.Module, shape: Sequence[int], names: Sequence[str]) -> list[Shown]:
    """A table of tools: the number and its unit, which products are left out, the line of most of them."""
    calls = Calls(module, shape)
    products = sum(each.macs for each in calls.operators)
    tools = [TOOLS[name] for name in names]
    rows = [(each.name, _printed(each, calls), each.unit, *_unseen(each, calls, products)) for each in tools]
    columns = dict.fromkeys(("tool", "prints", "unit", "products left out", "most of them in"), "text")
    table = Shown(columns={**columns, "tool": "label", "prints": "counted"}, rows=rows)  # type: ignore[dict-item]  # texts are of Held
    return [table, *(Shown(f"{each.name} ({each.package}): {each.about}.") for each in tools)]


def _printed(tool: Tool, calls: Calls) -> str:
    """The number that a tool prints, or that it fails on the input that it makes."""
    try:
        return f"{tool.count(calls):,}"
    except UncountableError as error:
        return f"nothing: {error}"


def _unseen(tool: Tool, calls: Calls, products: int) -> tuple[str, str]:
    """The share of products and convolutions that a tool does not see, and the source line of most of them."""
    lines: Counter[str] = Counter()
    for each in calls.operators:
        if not tool.sees(each):
            lines[f"{each.name.removeprefix('aten::')}, {each.place}"] += each.macs
    missed = sum(lines.values())
    if not missed:
        return "none", ""
    return f"{missed:,} MACs, {missed / products:.1%}", lines.most_common(1)[0][0]
