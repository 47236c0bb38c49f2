"""The figures of a report: which there are, what data each needs, and how one is drawn and written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.model.suite_file import Figure
from ctxbench.plugins.crossover import figure as figure_crossover
from ctxbench.plugins.memory import figure as figure_memory
from ctxbench.plugins.networks import figure as figure_network
from ctxbench.plugins.numerics import figure as figure_energy
from ctxbench.plugins.recall import figure as figure_recall

from ..curves import SCALING, figures_of
from ..panels import Panel
from . import cost as figure_cost
from . import curve as figure_curve
from . import points as figure_points
from . import samples as figure_samples
from .labels import freeze_layout
from .layout import PAGE, Sheet
from .style import Drawing, pdf_bytes, png_bytes, styled, svg_text

# What a figure can be written as besides SVG.
WRITERS = {"png": png_bytes, "pdf": pdf_bytes}


@dataclass(frozen=True)
class Kind:
    """One figure: its name for `--figures`, a heading, what it needs, whether that is there, and how to draw it.

    A `curve` has tables of its numbers, too. Drawn are those that the suite names and those `always` drawn; where it
    names none, all but those that have to be `asked` for.
    """

    name: str
    title: str
    needs: str
    available: Callable[[Sequence[Panel]], bool]
    draw: Callable[[Sequence[Panel], Sheet], Drawing]
    curve: Figure | None = None
    drawn: Literal["usually", "always", "asked"] = "usually"


def of_curve(figure: Figure, needs: str) -> Kind:
    """The kind of a figure that a suite names, or of SCALING."""
    return Kind(
        figure.name,
        figure.title,
        needs,
        partial(figure_curve.has_curve, figure=figure),
        lambda panels, sheet: figure_curve.curve(panels, figure, sheet),
        figure,
    )


KINDS = (
    Kind("cost", "Cost relative to self-attention", "a row of `sa` and another",
         figure_cost.has_relative, figure_cost.relative_costs),
    Kind("pareto", "Time against memory", "latency, memory and MACs of two rows",
         figure_points.has_pareto, figure_points.pareto),
    Kind("published", "Published against ours", "published numbers beside measured or predicted ones",
         figure_points.has_published, figure_points.published_against_ours),
    *(of_curve(figure, f"three or more {sizes} of a module")
      for figure, sizes in zip(SCALING, ("input sizes", "batch sizes", "channel counts"), strict=True)),
    Kind("crossover", "Crossovers", "two or more sizes of both modules of a pair, and --crossover FIRST:SECOND",
         figure_crossover.has_crossover, figure_crossover.crossovers),
    Kind("split", "Training and inference", "latency in both modes",
         figure_cost.has_split, figure_cost.train_infer_split),
    Kind("energy", "Accumulated energy of the singular values", "rows with the metric spectrum",
         figure_energy.has_energy, figure_energy.energies, drawn="always"),
    Kind("memory", "Memory over a pass", "timeline.csv, which runs with the metric memory write",
         figure_memory.has_memory, figure_memory.memory_over_time),
    Kind("network", "MACs of networks", "rows of modules in networks",
         figure_network.has_network, figure_network.macs_of_networks, drawn="always"),
    Kind("recall", "Recall by task", "two rows with the metric recall",
         figure_recall.has_recall, figure_recall.recall_by_task, drawn="always"),
    Kind("ability", "Ability against cost", "two rows with the metric recall, and what they cost",
         figure_recall.has_ability, figure_recall.ability, drawn="always"),
    Kind("samples", "Raw samples", "samples.csv with samples",
         figure_samples.has_samples, figure_samples.sample_streams, drawn="asked"),
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A figure on disk, its SVG for a page, and its file in each format."""

    kind: Kind
    drawing: Drawing
    svg: str
    paths: Mapping[str, Path]


def choose(names: Sequence[str] | None, panels: Sequence[Panel]) -> list[Kind]:
    """The figures to draw: those with data or, if names are given, those. UsageError for a name without data."""
    named = {figure.name: figure for panel in panels for figure in figures_of(panel)}
    own = [
        of_curve(figure, f"{' or '.join(figure.y)} at two or more values of {figure.x}") for figure in named.values()
    ]
    if names is None:
        others = ("always",) if own else ("always", "usually")
        kinds = [*own, *(kind for kind in KINDS if kind.drawn in others)]
        return [kind for kind in kinds if kind.available(panels)]
    by_name = {kind.name: kind for kind in (*KINDS, *own)}
    for name in names:
        if name not in by_name:
            raise unknown("figure", name, by_name)
        if not by_name[name].available(panels):
            raise UsageError(f"there is no data for the figure {name!r}: it needs {by_name[name].needs}")
    return [by_name[name] for name in dict.fromkeys(names)]


def write_figure(
    panels: Sequence[Panel], kind: Kind, folder: Path, formats: Sequence[str] = (), sheet: Sheet = PAGE
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
