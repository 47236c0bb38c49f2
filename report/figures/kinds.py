"""The figures of a report: which there are, what data each needs, and how one is drawn and written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.model.suite_file import Figure
from ctxbench.plugin import loaded

from ..curves import SCALING, drawn_of, figures_of
from ..panels import Panel
from . import cost as figure_cost
from . import curve as figure_curve
from . import points as figure_points
from . import samples as figure_samples
from .kind import FigureKind
from .labels import freeze_layout
from .layout import PAGE, FigureSize
from .style import Drawing, pdf_bytes, png_bytes, styled, svg_text

# What a figure can be written as besides SVG.
WRITERS = {"png": png_bytes, "pdf": pdf_bytes}


def of_curve(figure: Figure, needs: str, order: int = 0) -> FigureKind:
    """The kind of a figure that a suite names, or of SCALING."""
    return FigureKind(
        figure.name,
        figure.title,
        needs,
        lambda panel: drawn_of([panel], figure),
        lambda panels, sheet: figure_curve.curve(panels, figure, sheet),
        figure,
        order=order,
    )


OWN = (
    FigureKind("cost", "Cost relative to self-attention", "a row of `sa` and another",
         figure_cost.relative_quantities, figure_cost.relative_costs, order=10),
    FigureKind("pareto", "Time against memory", "latency, memory and MACs of two rows",
         figure_points.has_pareto, figure_points.pareto, order=20),
    FigureKind("published", "Published against ours", "published numbers next to measured or predicted ones",
         lambda panel: any(figure_points.published_points(panel)), figure_points.published_against_ours, order=30),
    *(of_curve(figure, f"three or more {sizes} of a module", order=40)
      for figure, sizes in zip(SCALING, ("input sizes", "batch sizes", "channel counts"), strict=True)),
    FigureKind("split", "Training and inference", "latency in both modes",
         figure_cost.has_split, figure_cost.train_infer_split, order=60),
    FigureKind("samples", "Raw samples", "samples.csv with samples",
         lambda panel: figure_samples.streams_of([panel]), figure_samples.sample_streams, drawn="asked", order=120),
)  # fmt: skip


@cache
def known() -> dict[str, FigureKind]:
    """The figures that there are, by name, by `order`. ValueError for a name that is taken."""
    found: dict[str, FigureKind] = {}
    for kind in sorted([*OWN, *(each for several in loaded("figures") for each in several)], key=lambda k: k.order):
        if kind.name in found:
            raise ValueError(f"The figure {kind.name} is declared twice.")
        found[kind.name] = kind
    return found


@dataclass(frozen=True)
class Written:
    """A figure on disk, its SVG for a page, and its file in each format."""

    kind: FigureKind
    drawing: Drawing
    svg: str
    paths: Mapping[str, Path]


def choose(names: Sequence[str] | None, panels: Sequence[Panel]) -> list[FigureKind]:
    """The figures to draw: those with data or, if names are given, those. UsageError for a name without data."""
    named = {figure.name: figure for panel in panels for figure in figures_of(panel)}
    own = [
        of_curve(figure, f"{' or '.join(figure.y)} at two or more values of {figure.x}") for figure in named.values()
    ]
    if names is None:
        others = ("always",) if own else ("always", "usually")
        kinds = [*own, *(kind for kind in known().values() if kind.drawn in others)]
        return [kind for kind in kinds if kind.is_in(panels)]
    by_name = known() | {kind.name: kind for kind in own}
    for name in names:
        if name not in by_name:
            raise unknown("figure", name, by_name)
        if not by_name[name].is_in(panels):
            raise UsageError(f"there is no data for the figure {name!r}: it needs {by_name[name].needs}")
    return [by_name[name] for name in dict.fromkeys(names)]


def write_figure(
    panels: Sequence[Panel], kind: FigureKind, folder: Path, formats: Sequence[str] = (), sheet: FigureSize = PAGE
) -> Written:
    """Draw a figure and write `<name>.svg` into the folder, and the same in each of the formats, which are in WRITERS.

    It is laid out once, so all of them look alike. UsageError for a figure in which nothing can be drawn.
    """
    paths = {ending: folder / f"{kind.name}.{ending}" for ending in ("svg", *formats)}
    with styled():
        drawing = kind.draw(panels, sheet)
        if not drawing.details:
            raise UsageError(
                f"the figure {kind.name!r} ({kind.title}) is empty: nothing can be drawn of what it needs, {kind.needs}"
            )
        freeze_layout(drawing.figure)
        svg = svg_text(drawing.figure)
        disk.write(paths["svg"], svg)
        for ending in formats:
            disk.write(paths[ending], WRITERS[ending](drawing.figure))
    return Written(kind, drawing, svg, paths)
