"""Reasons for a figure that is not reproduced: its ratio to the count, what would explain it, what is nearest."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from ctxbench.base.number import significant
from ctxbench.model.published import Printed
from ctxbench.plugins.audit.column import near_figures, tried
from ctxbench.plugins.audit.conventions import Changes
from ctxbench.plugins.audit.figure import PublishedFigure

# The sides of images and maps, and the batches, that a figure may be of.
SIDES = (
    32, 48, 56, 64, 96, 97, 112, 128, 129, 160, 192, 224, 240, 256, 288,
    299, 320, 384, 416, 448, 480, 512, 640, 768, 1024,
)  # fmt: skip
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Another input changes a figure by so much at least.
LEAST = 1.1
# So many places the point may be off: a digit, or a prefix.
POWERS = (-6, -3, -2, -1, 1, 2, 3, 6)
# More rows than this are not named, and none where the counts of others are so many of the figures near one.
MOST_ROWS, MOST_SHARE = 3, 0.1


def reasons(figure: PublishedFigure, column: Sequence[PublishedFigure], changes: Changes) -> str:
    """The ratio to the count under the column's convention, then what would explain it, else the nearest convention."""
    value = figure.count(changes)
    ratio = figure.printed.value * figure.printed.factor(figure.unit) / value if value else Fraction(0)
    found = [f"x{times(float(ratio))} of the count"] if ratio else ["the count is 0"] * (not value)
    clues = [*explanations(figure, column, changes)]
    if not clues and ratio:
        clues = [*_at_another_input(figure, changes, float(ratio))] or [*_nearest(figure, value)]
    return "; ".join(found + clues)


def explanations(figure: PublishedFigure, column: Sequence[PublishedFigure], changes: Changes) -> Iterator[str]:
    """Mistakes of which one would make the figure equal: rows or digits exchanged, the point, a batch, 16 bits."""
    value = figure.count(changes)
    yield from _of_other_rows(figure, column, changes)
    for text in _exchanged(figure.text):
        printed = Printed.parse(text)
        if printed.value != figure.printed.value and printed.rounds(value, figure.unit):
            yield f"with two digits exchanged, {text}, it is equal"
    convention = figure.convention(changes) if changes else None
    if convention and replace(convention, cut=True).agrees(figure.printed, value):
        yield "cut, not rounded, it is equal"
    for power in POWERS:
        if figure.printed.value and figure.is_printed(value, -power):
            yield f"it is 10^{power} times the count: {'another prefix' if abs(power) % 3 == 0 else 'the point is off'}"
    batch = figure.case.shape[0]
    if figure.quantity.startswith("macs"):
        same = [each for each in BATCHES if each != batch and figure.is_printed(value * each / batch)]
        yield from (f"it is the count of a batch of {each}, not {batch}" for each in same)
    if figure.quantity.startswith("memory") and figure.is_printed(value / 2):
        yield "it is half the count, as in 16 bits"


def times(ratio: float) -> str:
    """A ratio to two decimals, or to as many as tell it from 1; a large or small one to three digits."""
    if not 0.01 <= ratio < 100:
        return significant(ratio, 3)
    off = abs(ratio - 1)
    return f"{ratio:.{max(2, min(6, 1 - math.floor(math.log10(off)))) if off else 2}f}"


def _of_other_rows(figure: PublishedFigure, column: Sequence[PublishedFigure], changes: Changes) -> Iterator[str]:
    """Rows whose count the figure is; whether theirs is this row's."""
    own = figure.count(changes)
    rows = [each for each in column if each.row != figure.row and each.count(changes) != own]
    factor = figure.printed.factor(figure.unit)
    near, all_near = near_figures(figure, [each.count(changes) / factor for each in rows])
    if near > MOST_SHARE * all_near:
        return
    found = [each for each in rows if figure.is_printed(each.count(changes))]
    exchanged = [each for each in found if each.is_printed(own)]
    if len(exchanged or found) > MOST_ROWS:
        yield f"it is the count of {len(found)} other rows"
    elif found:
        names = ", ".join(each.row for each in exchanged or found)
        yield (
            f"exchanged with {names}: the two counts are in each other's place"
            if exchanged
            else f"it is the count of {names}"
        )


def _exchanged(text: str) -> Iterator[str]:
    """The figure with two of its digits exchanged, in each way."""
    places = [place for place, sign in enumerate(text) if sign.isdigit()]
    for one, other in itertools.combinations(places, 2):
        signs = [*text]
        signs[one], signs[other] = signs[other], signs[one]
        yield "".join(signs)


def _at_another_input(figure: PublishedFigure, changes: Changes, ratio: float) -> Iterator[str]:
    """A square input of another side that gives the figure: a cost grows with its area, or with the area squared."""
    batch, channels, height, width = figure.case.shape
    is_of_maps = figure.quantity.startswith(("macs", "memory"))
    if not is_of_maps or height != width or 1 / LEAST < ratio < LEAST:
        return
    ends = sorted(height * ratio**power for power in (0.25, 0.5))
    for side in SIDES:
        if ends[0] * 0.97 <= side <= ends[1] * 1.03 and side != height:
            value = figure.of_shape((batch, channels, side, side), changes)
            if value is not None and figure.is_printed(value):
                yield f"an input of {side} x {side}, not {height} x {width}, gives it"


def _nearest(figure: PublishedFigure, value: Fraction) -> Iterator[str]:
    """The nearest convention, if one is nearer than the count."""
    printed, factor = figure.printed, figure.printed.factor(figure.unit)
    conventions = {**figure.others, **figure.tools}
    would = {changes: count / printed.factor(conventions[changes].unit) for changes, count in figure.tried.items()}
    nearest = min(would, key=lambda changes: abs(would[changes] - printed.value), default=None)
    if nearest is None or abs(would[nearest] - printed.value) >= abs(value / factor - printed.value):
        yield f"none of {tried(figure)} is nearer"
    else:
        gives = figure.written(would[nearest] * factor)
        yield f"the nearest of {tried(figure)}, {'; '.join(nearest)}, gives {gives}"
