"""Figures that stand in one line of a text, as a published table of one row."""

from collections.abc import Mapping
from typing import Any

from ctxbench.base.errors import UsageError, unknown
from ctxbench.model import metrics
from ctxbench.model.conditions import Shape
from ctxbench.model.published import Printed
from ctxbench.plugins.audit.recounted import COUNTS, RecountedTable

# What two figures without a name are.
TWO = ("params", "macs")


def of_line(line: str, of: str, shape: Shape, settings: Mapping[str, Any], tool: str) -> RecountedTable:
    """The table of a line such as `0.494M,0.326G` or `macs=0.326G`, about a block or network. UsageError for others."""
    place = {"block": of} if ":" in of or not _is_network(of) else {"network": of}
    row = {**place, "settings": dict(settings), "printed": _figures(line)}
    about = {"title": of, "authors": "", "venue": "", "year": 0, "seen": "read", "tool": tool}
    return RecountedTable.model_validate({**about, "shape": shape, "rows": {of: row}})


def _is_network(name: str) -> bool:
    from ctxbench import registry
    from ctxbench.registry import networks

    return name in networks.names() and name not in registry.names()


def _figures(line: str) -> dict[str, str]:
    """The figures of a line by their quantities."""
    parts = [part.strip() for part in line.split(",")]
    named = [part.partition("=") for part in parts]
    names = [name for name, equals, _ in named if equals]
    if not names and len(parts) == len(TWO):
        found = dict(zip(TWO, parts, strict=True))
    elif len(names) == len(parts) == len({*names}):
        found = {name: figure for name, _, figure in named}
    else:
        raise UsageError(
            f"{line!r} is not PARAMS,MACS, such as 0.494M,0.326G, and not every figure has a name, such as "
            "macs=0.326G or memory_train=1411"
        )
    known = [name for name in COUNTS if name in metrics.quantities()]
    for name, figure in found.items():
        if name not in known:
            raise unknown("quantity that is counted", name, known)
        try:
            Printed.parse(figure)
        except ValueError as error:
            raise UsageError(f"{name} {figure!r}: {error}") from None
    return found
