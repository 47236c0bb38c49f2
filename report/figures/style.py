"""Style of every figure: colours by family, a marker for each module, and the same bytes on each call."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from ctxbench import registry


@dataclass(frozen=True)
class Look:
    """The colour and the marker of one module."""

    colour: str
    marker: str


MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "d", "h", "H", "8", "4", "3", "2", "1")
# The colour of a family (`family` of its registration), and the markers of its members in turn.
# Colours: Okabe and Ito, Color Universal Design (2008), without yellow and black, a purple of Paul Tol's (2021), and a
# violet, an olive and a brown that differ from them; each is visible on white and on black.
# Markers: such that two modules with the same one differ in grey and to colour-blind readers.
FAMILIES = {
    "attention": Look("#0072B2", "vs^>h4"),
    "sparse attention": Look("#56B4E9", "ss^D48D4XX8P>dd112"),
    "linear attention": Look("#009E73", "DPX<H>8dhosH2"),
    "channel attention": Look("#8844EE", "PX"),
    "pyramid": Look("#E69F00", "P<h><"),
    "matrix decomposition": Look("#D55E00", "Hs^D"),
    "pooling": Look("#CC79A7", "H<<vhpo>vo"),
    "spectral": Look("#AA3377", "P"),
    "large kernel": Look("#AAAA66", "ohvoHppv"),
    "state space": Look("#554422", "os^Dv"),
}
# Every other member of a family has its colour times this.
DARKER = 0.75
# For modules outside the registry, which are the ones under study, and for families that have no colour.
OWN_COLOURS, OWN_MARKER = ("#E3120B", "#00857C", "#5B3A00"), "*"
# Stand for the page's text and background colour, which a browser puts in their place.
INK, PAPER = "#1a1b1c", "#fefdfc"
FAINT = "#9a9a9a"
# Of the lines of one module, in turn.
DASHES = ("-", "--", ":", "-.")
PNG_DPI = 220
# How a point is drawn that has no interval: it looks as little sure as it is.
PALE = 0.35
# Points: the title, what is read first, and all else. Journals ask for 7 to 9 in print.
TITLE, TEXT, SMALL = 9, 8, 7
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.markersize": 4.5,
    "lines.linewidth": 1.0,
    "pdf.fonttype": 42,  # TrueType: IEEE and ACM refuse the default, Type 3
    "svg.fonttype": "none",
    "svg.hashsalt": "ctxbench",
}


@dataclass
class Drawing:
    """A figure before it is written. `details` says more about the artists that carry these ids."""

    figure: Figure
    caption: str
    details: dict[str, str] = field(default_factory=dict)

    def detail(self, text: str) -> str:
        """A new id for an artist (`set_gid`), with the text that a reader sees over it."""
        name = f"detail-{len(self.details)}"
        self.details[name] = text
        return name


def looks(modules: Iterable[str]) -> dict[str, Look]:
    """A look for each module: its family and its place in it decide; others have colours of their own, by name.

    Where all are of one family, each has a colour of its own.
    """
    known = _registered()
    wanted = sorted(set(modules))
    if 1 < len(wanted) <= len(FAMILIES) and len({_family(name) for name in wanted}) == 1:
        hues = [look.colour for look in FAMILIES.values()]
        known = {
            name: Look(hues[2 * place % len(hues)], look.marker)
            for place, name in enumerate(wanted)
            if (look := known.get(name))
        }
    others = [name for name in wanted if name not in known]
    own = {name: Look(OWN_COLOURS[i % len(OWN_COLOURS)], OWN_MARKER) for i, name in enumerate(others)}
    return {name: known.get(name) or own[name] for name in wanted}


def _family(module: str) -> str:
    """The family of a registry module; another one's own name."""
    return next((entry.family for entry in registry.entries() if entry.key == module), module)


@cache
def _registered() -> dict[str, Look]:
    """The looks of the registry's modules, which plug-ins do not change."""
    plug_ins_last = sorted(registry.entries(), key=lambda entry: not entry.reference.startswith(registry.BUILT_IN))
    return palette({entry.key: entry.family for entry in plug_ins_last})


def palette(families: Mapping[str, str]) -> dict[str, Look]:
    """A look for each module of a family that has one: the members have its colour in two shades, markers in turn."""
    found = {}
    for family, first in FAMILIES.items():
        red, green, blue = to_rgb(first.colour)
        shades = (first.colour, to_hex((DARKER * red, DARKER * green, DARKER * blue)))
        for place, module in enumerate(module for module, own in families.items() if own == family):
            found[module] = Look(shades[place % 2], first.marker[place % len(first.marker)])
    return found


@contextmanager
def plain(settings: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Draw and write figures inside this context: matplotlib's own style but for `settings`, whatever a file says."""
    # A module's name may hold a dollar sign. No window system is there.
    own = {**mpl.rcParamsDefault, "text.parse_math": False, "backend": "agg"}
    with mpl.rc_context({**own, **(settings or {})}):
        yield


@contextmanager
def styled() -> Iterator[None]:
    """Draw and write the figures of a report inside this context."""
    with plain(_SETTINGS):
        yield


class _Canvas(FigureCanvasAgg):
    """Draws when a figure is written: axes that share limits across parts would ask for it at each change of these."""

    def draw_idle(self, *arguments: Any, **options: Any) -> None:
        pass


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    _Canvas(figure)
    return figure


_COORDINATES = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_NO_TURN = re.compile(r' transform="rotate\(-?0 [^"]*"')
_LONG = re.compile(r"-?(?<!\d)\d+\.\d{3,}")


def _shortened(found: re.Match[str]) -> str:
    """A coordinate in points to two decimals: a hundredth of a point is not seen."""
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def svg_text(figure: Figure) -> str:
    """The figure as SVG, the same for the same data: no date, no version, ids from a fixed salt."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = _COORDINATES.sub(lambda found: _LONG.sub(_shortened, found[0]), _NO_TURN.sub("", buffer.getvalue()))
    return "\n".join(line.strip() for line in text.splitlines()) + "\n"


def pdf_bytes(figure: Figure) -> bytes:
    """The figure as PDF, the same for the same data."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return buffer.getvalue()


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG of 256 colours, which are enough for lines and flat areas and a third of the size.

    Of Pillow's methods, this one changes no colour by more than a reader can see.
    """
    buffer, smaller = io.BytesIO(), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PNG_DPI)
    with Image.open(buffer) as image:
        reduced = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
        reduced.save(smaller, format="png", optimize=True, dpi=(PNG_DPI, PNG_DPI))
    return smaller.getvalue()


_ID = re.compile(r'(\bid="|url\(#|href="#)')


def inline_svg(svg: str, prefix: str) -> str:
    """The `<svg>` element alone, for a page: ids unique by prefix, colours taken from the page."""
    before, _, after = svg[svg.index("<svg") :].partition("<metadata>")
    element = _ID.sub(rf"\1{prefix}-", before + after.partition("</metadata>")[2])
    return element.replace(INK, "currentColor").replace(PAPER, "var(--paper)").strip()
