"""Columns that `choose` and `compare` put beside costs: what a block gained over the plain body, as published."""

from collections.abc import Sequence

from ctxbench.table.table import Cell, TableColumn
from ctxbench_science.twins.gains import twins
from ctxbench_science.twins.records import NAMES, PLAIN


def gains_of(keys: Sequence[str]) -> tuple[list[tuple[TableColumn, list[Cell]]], str]:
    """A column for each source that has one of these modules, and a sentence on them; none and "" where none has.

    A cell is the gain in points with its 95 % interval; that of a key without twins is empty.
    """
    found = []
    for name in NAMES:
        source = twins(name)
        gains = {key: source.difference(key) for key in keys if source.differences(key, PLAIN)}
        if gains:
            measure = source.source.measure
            texts = {key: gain.text(decimals=1, sign="+") for key, gain in gains.items()}
            cells = [Cell(texts[key], gains[key].value) if key in texts else Cell() for key in keys]
            column = TableColumn(f"gain_{name}", "published gain", measure, "published", "published gain")
            found.append((column, cells))
    return found, _SENTENCE if found else ""


_SENTENCE = (
    "Published gain: points over the same network without the block, as others print them [95 % interval over networks "
    "and data sets]; an interval that contains 0 shows no gain. The gain is that of the whole network, not of this "
    "input. Most blocks are tied: see docs/plugins/twins.md."
)
