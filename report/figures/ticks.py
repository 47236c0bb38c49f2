"""Log axes with round numbers, written out, as many as stand beside each other in the size of the print."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import Formatter, LogLocator, MaxNLocator, NullLocator

from .style import SMALL

# Within a decade, the densest first.
_STEPS = ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
# Numbers outside of these are written as powers of ten.
_PLAIN = (1e-4, 1e8)
_SUPERSCRIPT = str.maketrans("-0123456789", "\N{SUPERSCRIPT MINUS}⁰¹²³⁴⁵⁶⁷⁸⁹")
# Of the size of the letters: a character's width, and what is between two numbers beside and below each other.
_CHARACTER, _BESIDE, _BELOW = 0.64, 0.9, 0.8


def log_axis(axes: Axes, which: Literal["x", "y"], measured: Sequence[float] = ()) -> None:
    """Make an axis logarithmic. Its ticks are at what was `measured` if all of that can be read, else round numbers."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(_Locator(axes, which, measured))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_Formatter())


def tick_texts(values: Sequence[float]) -> list[str]:
    """The numbers of an axis, all of them written out or all as powers of ten."""
    if all(_PLAIN[0] <= value < _PLAIN[1] for value in values):
        return [f"{value:,.10g}" for value in values]
    return [_power(value) for value in values]


def _power(value: float) -> str:
    factor, exponent = f"{value:.3e}".split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if float(factor) == 1 else f"{float(factor):g}\N{MIDDLE DOT}{power}"


class _Formatter(Formatter):
    def __call__(self, value: float, place: int | None = None) -> str:
        return tick_texts([value])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        return tick_texts(values)


class _Locator(LogLocator):
    """Chosen when the axis has its size: the most round numbers whose texts do not touch."""

    def __init__(self, axes: Axes, which: Literal["x", "y"], measured: Sequence[float]) -> None:
        super().__init__()
        self.axes, self.which, self.measured = axes, which, sorted(measured)
        self._found: dict[tuple[float, float, float], list[float]] = {}  # matplotlib asks for the same ticks often

    def tick_values(self, low: float, high: float) -> list[float]:
        low, high = sorted((low, high))
        if (key := (low, high, self._length())) not in self._found:
            self._found[key] = self._chosen(*key)
        return self._found[key]

    def _length(self) -> float:
        """Length of the axis in points."""
        box = self.axes.get_window_extent()
        return float(box.width if self.which == "x" else box.height) * 72 / self.axes.figure.dpi

    def _chosen(self, low: float, high: float, length: float) -> list[float]:
        found = [values for values in self._candidates(low, high) if values]
        found += [[values[0], values[-1]] for values in found if len(values) > 1]
        readable = (values for values in found if len(values) > 1 and self._fit(values, low, high, length))
        return next(readable, found[0][:1] if found else [])

    def _candidates(self, low: float, high: float) -> Iterator[list[float]]:
        """Candidate ticks: measured values, round numbers of one decade and every few, even steps; densest first."""
        if self.measured:
            yield self.measured
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        sets = [[10.0**power * step for power in range(first, last) for step in steps] for steps in _STEPS]
        sets += [[10.0**power for power in range(first, last + 1) if power % apart == 0] for apart in range(1, 9)]
        sets += [list(MaxNLocator(number, steps=[1, 2, 5, 10]).tick_values(low, high)) for number in (5, 4, 3, 2, 1)]
        for values in sets:
            yield [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]

    def _fit(self, values: Sequence[float], low: float, high: float, length: float) -> bool:
        """Return whether the texts of the values stand on the axis without touching."""
        apart = np.diff(np.log(values)) / math.log(high / low) * length
        if self.which == "y":
            return bool((apart >= SMALL * (1 + _BELOW)).all())
        widths = SMALL * _CHARACTER * np.array([len(text) for text in tick_texts(values)])
        return bool((apart >= (widths[1:] + widths[:-1]) / 2 + SMALL * _BESIDE).all())
