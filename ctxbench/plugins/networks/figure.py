"""The figure of networks: where the MACs of a network are, its own parts and the module, for each module."""

import json
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from ctxbench.base.number import significant
from ctxbench.model.metric import RecordRow
from ctxbench.plugins.networks.in_slot import SLOT
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.layout import PAGE, FigureSize, legend_below, names_of, parts, without_family
from ctxbench.report.figures.style import INK, PAPER, SMALL, Drawing
from ctxbench.report.panels import Panel, label_of
from ctxbench.results.rows import by_values

# The network's own parts, from the one with the most MACs on; the module has the first.
_COLOURS = ("#E3120B", "#9a9a9a", "#c4c4c4", "#dedede")
# Inches of the least wide part, and by how much the lines of names are nearer than elsewhere.
_LEAST, _LINE = 3.2, 0.65


def _shown(panel: Panel) -> dict[str, list[RecordRow]]:
    """The rows of each network at its largest input, by rising MACs of the module."""
    filled = [row for row in panel.rows if row["network"] and row["network_parts"]]
    found = {}
    for (network,), rows in by_values(filled, "network").items():
        largest = [row for row in rows if _pixels([row]) == _pixels(rows)]
        if len(largest) > 1:
            found[str(network)] = sorted(largest, key=lambda row: _parts(row["network_parts"]).get(SLOT, 0))
    return found


def _pixels(rows: Sequence[RecordRow]) -> int:
    return max(int(row["height"] * row["width"]) for row in rows)


def _parts(text: str) -> Mapping[str, int]:
    found: Mapping[str, int] = json.loads(text)
    return found


def macs_of_networks(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """A bar for each module in each network at its largest input: the MACs of its parts, and what the module
    adds to the others."""
    largest: dict[str, tuple[Panel, list[RecordRow]]] = {}
    for panel in panels:
        for network, rows in _shown(panel).items():
            before = largest.get(network)
            if before is None or _pixels(rows) > _pixels(before[1]):
                largest[network] = panel, without_family(rows)  # a colour is a part of the network here
    drawn = list(largest.values())
    names = [names_of(rows) for _, rows in drawn]
    heights = [_LINE * own.height + 1.2 for own in names]
    beside = sheet.columns(_LEAST, 2)
    figure, found = parts("MACs of a network and of the module in it", sheet, drawn, heights, ("counted",), beside)
    drawing = Drawing(figure, "MACs of an inference by the network's own parts, and what the module adds to them.")
    for (_, rows), part, own in zip(drawn, found, names, strict=True):
        axes = part.subplots()
        _bars(drawing, axes, rows, own.middles)
        axes.set(ylim=(own.height, 0), xlabel="MACs (G)")
        axes.set_yticks(own.middles, own.texts)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        legend_below(axes)
    return drawing


def _bars(drawing: Drawing, axes: Axes, records: Sequence[RecordRow], places: Sequence[float]) -> None:
    all_parts = [_parts(row["network_parts"]) for row in records]
    own = sorted({name for each in all_parts for name in each} - {SLOT}, key=lambda name: -all_parts[0].get(name, 0))
    shown = [*own[: len(_COLOURS) - 1], SLOT]
    for row, macs, place in zip(records, all_parts, places, strict=True):
        begin = 0.0
        for name in shown:
            size = macs.get(name, 0) / 1e9
            colour = _COLOURS[0] if name == SLOT else _COLOURS[1 + own.index(name)]
            label = name if place == places[0] else None
            (bar,) = axes.barh(place, size, 0.2, left=begin, color=colour, edgecolor=PAPER, linewidth=0.5, label=label)
            bar.set_gid(drawing.detail(f"{label_of(row)}, {name}: {significant(size)} G"))
            begin += size
        added = f"+{macs.get(SLOT, 0) / sum(size for name, size in macs.items() if name != SLOT):.1%}"
        axes.text(1.01, place, added, va="center", fontsize=SMALL, color=INK, transform=axes.get_yaxis_transform())


FIGURES = (
    FigureKind("network", "MACs of networks", "rows of modules in networks",
         _shown, macs_of_networks, drawn="always", order=90),
)  # fmt: skip
