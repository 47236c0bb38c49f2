"""The convention of a column: the one that makes more than half of its figures equal, or the counter that does."""

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from ctxbench.base.texts import counted
from ctxbench.plugins.audit.conventions import OF_PRODUCTS, PRODUCTS, Changes, as_counted_by
from ctxbench.plugins.audit.figure import PublishedFigure

# A convention that the source does not name has to explain so many figures at least that its own does not.
EVIDENCE = 2
# How near other figures are that might have stood in a figure's place.
NEAR = Fraction(1, 10)
# A counter that the source does not name is no evidence where so many of the figures near would fit one, too.
MOST_BY_CHANCE = Fraction(1, 10)


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
    """Counters by whose conventions most figures are equal, more than half; of one count alone, conventions, too.

    What they explain and the `other` convention (None: there is none) does not has to be more than most figures of so
    few digits would find. The counter of products is named where it explains all figures: beside that of products, or
    alone if that explains fewer.
    """
    rest = [each for each in figures if other is None or not each.fits(other)]
    if other and PRODUCTS in other:
        own = [each for each in figures[0].tools if as_counted_by(OF_PRODUCTS) in each]
        if found := [each for each in own if all(figure.fits(each) for figure in figures)]:
            return found if rest else [other, *found]
    if not rest or not figures[0].tools or (_are_alike(rest) and len(rest) < len(figures)):
        return []
    tried = dict.fromkeys(changes for each in figures for changes in each.tried)
    ways = tried if _are_alike(figures) else [changes for changes in tried if changes in figures[0].tools]
    equal = {changes: [each for each in figures if each.fits(changes)] for changes in ways}
    most = max(map(len, equal.values()), default=0)
    if most <= max(len(figures) / 2, len(figures) - len(rest)):
        return []
    best = {changes: own for changes, own in equal.items() if len(own) == most}
    return [
        changes
        for changes, own in best.items()
        if (new := [each for each in own if each in rest]) and Fraction(*by_chance(new)) <= MOST_BY_CHANCE
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
    """The conventions and counters under which a figure is equal: conventions first, those with the fewest changes."""
    return [changes for changes in figure.tried if figure.fits(changes)]


def tried(figure: PublishedFigure) -> str:
    """`19 conventions and 44 readings of counters`: what a figure was compared with."""
    of_counters = sum(changes in figure.tools for changes in figure.tried)
    conventions = counted(len(figure.tried) - of_counters, "convention")
    return f"{conventions} and {counted(of_counters, 'reading')} of counters" if of_counters else conventions


def chance(figures: Sequence[PublishedFigure]) -> str:
    """`19 conventions tried, 2 fit; 8 of the 112 figures near it would fit one`: how much it says that they fit one."""
    first = figures[0]
    fits = sum(all(each.fits(changes) for each in figures) for changes in first.tried)
    near, all_near = by_chance(figures)
    share = f"{100 * near / all_near:.2g}" if near * 1000 > all_near else "less than 0.1"
    would = f"{near} of the {all_near} figures near it" if len(figures) == 1 else f"{share} % of the figures near these"
    found = f"{fits} fit; " * any(changes in first.tools for changes in first.tried)
    return f"{tried(first)} tried, {found}{would} would fit one"


def by_chance(figures: Sequence[PublishedFigure]) -> tuple[int, int]:
    """Of all figures of these digits near the printed ones: how many a convention or counter prints, and how many are.

    Figures with one count are one figure.
    """
    different = {each.count(()): each for each in figures}.values()
    ranges = [_near(each) for each in different]
    would = {tuple(each.digits(changes) for each in different) for changes in figures[0].known}
    hits = [each for each in would if all(digits in near for digits, near in zip(each, ranges, strict=True))]
    return len(hits), math.prod(map(len, ranges))


def pairs_by_chance(
    figures: Sequence[PublishedFigure], counters: Iterable[Sequence[Sequence[Changes]]]
) -> tuple[int, int]:
    """The same of figures that one of the `counters`, by its ways of counting each, prints together."""
    ranges = [_near(each) for each in figures]
    printed = [
        [
            {each.digits(changes) for changes in own} & {*near}
            for each, own, near in zip(figures, ways, ranges, strict=True)
        ]
        for ways in counters
    ]
    return len({pair for each in printed for pair in itertools.product(*each)}), math.prod(map(len, ranges))


def near_figures(figure: PublishedFigure, values: Iterable[Fraction]) -> tuple[int, int]:
    """Numbers of figures of these digits near a figure: of those that these values are printed as, and of all."""
    near = _near(figure)
    return sum(each in near for each in {round(value / figure.printed.step) for value in values}), len(near)


def _near(figure: PublishedFigure) -> range:
    """The figures of these digits near a figure, in units of the last digit."""
    ends = [figure.printed.value * (1 + sign * NEAR) / figure.printed.step for sign in (-1, 1)]
    return range(math.ceil(ends[0]), math.floor(ends[1]) + 1)
