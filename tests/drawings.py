"""The panels and figures of runs, for the tests of figures."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ctxbench.report.figures.kinds import choose
from ctxbench.report.figures.style import Drawing
from ctxbench.report.panels import Panel, panels_of
from ctxbench.report.run_data import open_run


def panels(*paths: Path) -> list[Panel]:
    found: list[Panel] = panels_of([open_run(path) for path in paths])
    return found


def names(found: Sequence[Panel]) -> list[str]:
    return [kind.name for kind in choose(None, found)]


def headings_of(drawing: Drawing) -> list[str]:
    """The line above each part of a figure."""
    return [" ".join(part.get_suptitle().split()) for part in drawing.figure.subfigs]


def legend_of(figure: Figure) -> list[str]:
    """The entries of the one legend of a figure's only part."""
    ((legend,),) = [part.legends for part in figure.subfigs]
    return [text.get_text() for text in legend.get_texts()]
