"""The convention of a column: the one that makes more than half of its figures equal, or the counter that does."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from ctxbench.plugins.audit.conventions import OF_PRODUCTS, PRODUCTS, TOOLS, Changes, as_counted_by
from ctxbench.plugins.audit.figure import PublishedFigure

# A convention that the source does not name has to explain so many figures at least that its own does not.
EVIDENCE = 2
# How near other figures are that might have stood in a figure's place.
NEAR = Fraction(1, 10)


def convention_of(figures: Sequence[PublishedFigure]) -> Changes | None:
    """Changes that tell a column's convention from the source's own: () if it is that, None if there is none."""
    equal = [each for each in figures if each.fits(())]
    rest = [each for each in figures if not each.fits(())]
    most, found = len(equal), Changes()
    tried = [] if _are_alike(rest) else [changes for each in rest for changes in each.others]
    for changes in dict.fromkeys(tried):
        if most == len(figures):
            break
        gained = [each for each in rest if each.fits(changes)]
        if _are_alike(gained, changes):
            continue
        kept = len(gained) + _kept(equal, changes, most - len(gained))
        if kept > most:
            most, found = kept, changes
    return found if 2 * most > len(figures) else None


def counters_of(figures: Sequence[PublishedFigure], other: Changes | None) -> list[Changes]:
    """Counters by whose conventions most figures are equal, more than half.

    They have to explain two different counts that the `other` convention (None: there is none) does not. The counter
    of products is named where it explains all figures: beside that of products, or alone if that explains fewer.
    """
    rest = [each for each in figures if other is None or not each.fits(other)]
    if other and PRODUCTS in other:
        own = [each for each in figures[0].tools if as_counted_by(OF_PRODUCTS) in each]
        if found := [each for each in own if all(figure.fits(each) for figure in figures)]:
            return found if rest else [other, *found]
    if _are_alike(rest) or not figures[0].tools:
        return []
    for each in figures:
        each.recount.counts(each.case, TOOLS.values())
    equal = {changes: [each for each in figures if each.fits(changes)] for changes in figures[0].tools}
    most = max(map(len, equal.values()))
    return [
        changes
        for changes, own in equal.items()
        if len(own) == most > max(len(figures) / 2, len(figures) - len(rest))
        and not _are_alike([each for each in own if each in rest], changes)
    ]


def _are_alike(figures: Sequence[PublishedFigure], changes: Changes = ()) -> bool:
    """Return whether figures have too few different counts to be evidence for a convention."""
    return len({each.count(changes) for each in figures}) < EVIDENCE


def _kept(equal: Sequence[PublishedFigure], changes: Changes, needed: int) -> int:
    """Number of figures that stay equal, counted until it is known to be no more than `needed`."""
    kept = 0
    for place, each in enumerate(equal):
        if kept + len(equal) - place <= needed:
            break
        kept += each.fits(changes)
    return kept


def fitting(figure: PublishedFigure) -> list[Changes]:
    """The conventions under which a figure is equal, those with the fewest changes first."""
    return [changes for changes in figure.others if figure.fits(changes)]


def chance(figure: PublishedFigure) -> str:
    """`19 conventions tried, 8 of the 112 figures near it would fit one`: how much it says that a figure fits one."""
    known = [(each, figure.counted(each)) for each in figure.others.values()]
    would = [(each, value / figure.printed.factor(each.unit)) for each, value in known if value is not None]
    near, all_near = near_figures(figure, [value - figure.printed.step / 2 * each.cut for each, value in would])
    tried = f"{len(would)} convention{'s' * (len(would) != 1)} tried"
    return f"{tried}, {near} of the {all_near} figures near it would fit one"


def near_figures(figure: PublishedFigure, values: Iterable[Fraction]) -> tuple[int, int]:
    """Numbers of figures of these digits near a figure: of those that these values are printed as, and of all."""
    step = figure.printed.step
    low = math.ceil(figure.printed.value * (1 - NEAR) / step)
    high = math.floor(figure.printed.value * (1 + NEAR) / step)
    return sum(low <= each <= high for each in {round(value / step) for value in values}), high - low + 1
