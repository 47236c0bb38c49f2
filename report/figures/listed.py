"""Modules below each other, sorted by what a word such as the dtype changes: a point for each module and word."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ctxbench.base.number import Number, ratio, rough_ratio, significant
from ctxbench.model.metric import Quantity
from ctxbench.model.metrics import read_number

from ..curves import Series
from .style import FAINT, INK, PALE, SMALL, Drawing, looks
from .ticks import log_axis

_MARKERS = ("o", "D", "s", "^", "v", "P")
# The first word is marked where a ratio to it is within this factor.
_NEAR = 10.0
# Lines between the points of two words of one module, where they have intervals.
_BESIDE = 0.28
_UNSURE = "pale: no interval (fewer than 3 common\nrounds, or timed while other work ran)"


@dataclass(frozen=True)
class _Point:
    """A number of a module at a word: over that at the word `base` or, where there is none, in the quantity's unit."""

    value: float
    interval: tuple[float, float] | None
    text: str


def listed_axes(
    drawing: Drawing, axes: Axes, lines: Sequence[Series], each: Quantity, above: Sequence[str] = (), only: str = ""
) -> list[str]:
    """A line for each module: its number at each other word over that at the first, with its 95 % interval over rounds.

    Where no module has a number at the first word, such as an export of the eager module, the numbers themselves. The
    lines are in the order `above` of other axes, and sorted beyond that; their order is returned. With `only`, of one
    word.
    """
    appearance = looks(line.module for line in lines)
    words = list(dict.fromkeys(str(x) for line in lines for x in line.x))
    values = {line: _values(line, each) for line in lines}
    base = words[0] if any(words[0] in own for own in values.values()) else ""
    points = {line: _points(own, words, base, each) for line, own in values.items()}
    order = sorted(filter(points.get, points), key=lambda line: next(iter(points[line].values())).value)
    order.sort(key=lambda line: above.index(line.title) if line.title in above else len(above))
    far = [point.value for line in order for point in points[line].values() if point.value != 1]
    off = bool(base and far and (min(far) > _NEAR or max(far) < 1 / _NEAR))  # what is as at `base` would stand far away
    shown = [word for word in words if only in ("", word) and any(word in points[line] for line in order)]
    points = {line: {word: own[word] for word in shown if word in own} for line, own in points.items()}
    for place, line in enumerate(order):
        for word, point in points[line].items():
            number = shown.index(word)
            if off and point.value == 1:
                axes.text(0.01, place, "=", transform=axes.get_yaxis_transform(), va="center", fontsize=SMALL)
                continue
            beside = place + _BESIDE * (number - (len(shown) - 1) / 2) * each.has_interval
            if point.interval:
                axes.plot(point.interval, [beside, beside], color=FAINT, linewidth=0.8, zorder=1)
            alpha = PALE if each.has_interval and not point.interval else None
            (mark,) = axes.plot(
                point.value, beside, _MARKERS[number % len(_MARKERS)], color=appearance[line.module].colour,
                markersize=3.5, fillstyle="full" if number % 2 == 0 else "none", alpha=alpha,
            )  # fmt: skip
            mark.set_gid(drawing.detail(f"{line.title}, {word}: {point.text}"))
    for number, word in enumerate(shown if not only else []):
        fill = "full" if number % 2 == 0 else "none"
        axes.plot([], [], _MARKERS[number % len(_MARKERS)], color=INK, markersize=3.5, fillstyle=fill, label=word)
    if each.has_interval and not all(point.interval for line in order for point in points[line].values()):
        axes.plot([], [], "o", color=INK, alpha=PALE, markersize=3.5, label=_UNSURE)
    if off and any(point.value == 1 for line in order for point in points[line].values()):
        axes.plot([], [], linestyle="", marker="$=$", color=INK, markersize=5, label=f"as {base}")
    if order:
        log_axis(axes, "x")
    if base and not off and any(1 / _NEAR < point.value < _NEAR for line in order for point in points[line].values()):
        axes.axvline(1, color=FAINT, linewidth=0.9, zorder=0)
    axes.set(xlabel=f"times {base}" if base else each.unit.symbol, ylim=(-0.7, len(order) - 0.3))
    axes.set_yticks(range(len(order)), [line.title for line in order], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    return [line.title for line in order]


def _values(line: Series, each: Quantity) -> dict[str, Number]:
    """The numbers of a module above 0 by word."""
    own = {str(x): read_number(row, each) for x, row in zip(line.x, line.rows, strict=True)}
    return {word: value for word, value in own.items() if value and value.value > 0}


def _points(own: dict[str, Number], words: Sequence[str], base: str, each: Quantity) -> dict[str, _Point]:
    """Points of a module, by word; nothing where it has no number at `base`."""
    if not base:
        factor, symbol = each.unit.factor, each.unit.symbol
        return {
            word: _Point(value.value / factor, None, f"{significant(value.value / factor)} {symbol}".strip())
            for word, value in own.items()
        }
    first = own.get(base)
    return {word: _ratio(own[word], first, base, each) for word in words if first and word != base and word in own}


def _ratio(value: Number, first: Number, base: str, each: Quantity) -> _Point:
    plain = value.value / first.value
    text = f"{rough_ratio(plain).text()} times {base}"
    over_rounds = ratio(value, first)
    if (
        not each.has_interval
        or value.reason_not_comparable
        or first.reason_not_comparable
        or not over_rounds.has_interval
    ):
        return _Point(plain, None, text)
    return _Point(plain, over_rounds.ends, f"{text}, over rounds {over_rounds.text()}")
