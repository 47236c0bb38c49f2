"""Accumulated energy of the singular values before and after each module, as in Fig. 6 of the Hamburger paper."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .layout import multiples
from .panels import Panel
from .style import FAINT, Drawing, looks

_COLUMN = "spectrum_energies"


@dataclass(frozen=True)
class _Module:
    """A module's rows that have the energies, one for each setting."""

    panel: Panel
    name: str
    rows: pd.DataFrame


def _modules(panels: Sequence[Panel]) -> list[_Module]:
    return [
        _Module(panel, str(name), rows)
        for panel in panels
        for name, rows in panel.frame[panel.frame[_COLUMN] != ""].groupby("name", sort=False)
    ]


def has_energy(panels: Sequence[Panel]) -> bool:
    """Whether any row has accumulated energies."""
    return bool(_modules(panels))


def energies(panels: Sequence[Panel]) -> Drawing:
    """Small axes, one a module: the share of energy in the first k singular values, of the input and of the output."""
    shown = _modules(panels)
    figure, placed = multiples(shown, 1.75, 1.5, share=True)
    drawing = Drawing(
        figure,
        "Share of the energy (sum of squares) in the first k singular values: of the input (dashed) and of the "
        "untrained module's output; a module with several settings has a line for each.",
    )
    for part, cells in placed:
        for axes, each in cells:
            _draw(drawing, axes, each)
        part.supxlabel("k", fontsize=9)
    return drawing


def _draw(drawing: Drawing, axes: Axes, each: _Module) -> None:
    colour = looks(each.rows["module"])[str(each.rows["module"].iloc[0])].colour
    for place, (settings, text) in enumerate(zip(each.rows["settings"], each.rows[_COLUMN], strict=True)):
        found = json.loads(text)
        k = np.arange(1, len(found["in"]) + 1)
        if not place:
            axes.plot(k, found["in"], "--", color=FAINT)
        (line,) = axes.plot(k, found["out"], color=colour, alpha=1 - 0.7 * place / len(each.rows))
        line.set_gid(drawing.detail(f"{each.name} {settings}: {found['out'][0]:.2f} at k = 1".replace(" :", ":")))
    axes.set_title(each.name)
    axes.set(ylim=(0, 1.03), xlim=(0, len(k)))
    axes.grid(which="major")
