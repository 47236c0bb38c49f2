"""Accumulated energy of the singular values before and after each module, as in Fig. 6 of the Hamburger paper."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ctxbench.model.metric import RecordRow
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.layout import PAGE, FigureSize, multiples
from ctxbench.report.figures.style import FAINT, TEXT, Drawing, looks
from ctxbench.report.figures.ticks import log_axis
from ctxbench.report.panels import Panel
from ctxbench.results.rows import by_values

_COLUMN = "spectrum_energies"


@dataclass(frozen=True)
class _Module:
    """A module's rows that have the energies, one for each setting."""

    panel: Panel
    name: str
    rows: Sequence[RecordRow]


def _modules(panels: Sequence[Panel]) -> list[_Module]:
    return [
        _Module(panel, str(name), rows)
        for panel in panels
        for (name,), rows in by_values((row for row in panel.rows if row[_COLUMN]), "name").items()
    ]


def has_energy(panels: Sequence[Panel]) -> bool:
    """Return whether any row has accumulated energies."""
    return bool(_modules(panels))


def energies(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Small axes, one a module: the share of energy in the first k singular values, of the input and of the output."""
    shown = _modules(panels)
    title = "Energy in the k largest singular values, before (dashed) and after"
    figure, placed = multiples(title, shown, sheet, 0.8, 1.05, share=True, most=8)
    drawing = Drawing(
        figure,
        "Share of the energy (sum of squares) in the first k singular values: of the input (dashed) and of the "
        f"untrained module's output (solid).{_shades(shown)}",
    )
    curves = (json.loads(row[_COLUMN]) for each in shown for row in each.rows)
    least = min(shares[of][0] for shares in curves for of in ("in", "out"))
    for part, cells in placed:
        for axes, each in cells:
            _draw(drawing, axes, each)
        first = cells[0][0]  # all share its axes
        first.set_ylim(math.floor(20 * least) / 20, 1.01)
        log_axis(first, "x")
        part.supxlabel("k", fontsize=TEXT)
        part.supylabel("share of the energy", fontsize=TEXT)
    return drawing


def _shades(shown: Sequence[_Module]) -> str:
    """Meaning of the shades of a colour, where a module has several settings."""
    several = {", ".join(row["settings"] for row in each.rows): each.name for each in shown if len(each.rows) > 1}
    of = next(iter(several)) if len(several) == 1 else "; ".join(f"{name}: {text}" for text, name in several.items())
    return f" The shades of a colour, from dark to light: {of}." if several else ""


def _draw(drawing: Drawing, axes: Axes, each: _Module) -> None:
    (look,) = looks(row["module"] for row in each.rows).values()
    for place, row in enumerate(each.rows):
        settings, found = row["settings"], json.loads(row[_COLUMN])
        if not place:
            axes.plot(range(1, len(found["in"]) + 1), found["in"], "--", color=FAINT)
        alpha = 1 - 0.75 * place / len(each.rows)
        (line,) = axes.plot(range(1, len(found["out"]) + 1), found["out"], color=look.colour, alpha=alpha)
        line.set_gid(drawing.detail(f"{each.name} {settings}: {found['out'][0]:.2f} at k = 1".replace(" :", ":")))
    name, _, mark = each.name.partition(" [")  # of a local block
    axes.set_title(name)
    axes.text(
        0.97,
        0.04,
        mark.removesuffix("]").replace(": ", ":\n").replace(" pos", "\npos"),
        transform=axes.transAxes,
        ha="right",
        fontsize=TEXT,
    )
    axes.grid(which="major")


FIGURES = (
    FigureKind("energy", "Accumulated energy of the singular values", "rows with the metric spectrum",
         has_energy, energies, drawn="always", order=70),
)  # fmt: skip
