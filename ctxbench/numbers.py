"""How a number is written: as many digits as its interval, or the number that it stands beside, justifies."""

import math
from collections.abc import Iterable

from ctxbench.errors import UsageError
from ctxbench.metrics.base import Unit

MOST_DIGITS = 4
# Smaller numbers are written as 8.3e-17.
SMALLEST_PLAIN = 1e-4
PREFIXES = ("", "K", "M", "G", "T", "P")


def parse_unit(text: str, where: str) -> Unit:
    """A unit from `G = 10^9`; UsageError names `where` it stands."""
    try:
        return Unit.parse(text)
    except ValueError as error:
        raise UsageError(f"{where} is {text!r}; {error}") from None


def is_prefix(unit: Unit) -> bool:
    """Whether the unit is a bare prefix, `M = 10^6` or `Mi = 2^20`: it has to be explained, and may be scaled."""
    return bool(unit.symbol) and unit.symbol.removesuffix("i") in PREFIXES


def scaled_unit(values: Iterable[float]) -> Unit:
    """The prefix, a power of 1000, with which the largest value has one to three digits before the point."""
    largest = max((v for v in values if math.isfinite(v)), default=0.0)
    chosen = Unit("")
    for power, symbol in enumerate(PREFIXES):
        candidate = Unit(symbol, 10, power * 3)
        if candidate.factor <= largest:
            chosen = candidate
    return chosen


def decimals_of(printed: str) -> int:
    """Digits after the point of a number as printed."""
    return len(printed.partition(".")[2])


def leading_value(printed: str) -> float | None:
    """The number in a printed figure; None if it is none, such as `-` or `OOM`."""
    try:
        value = float(printed.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fixed(value: float, decimals: int) -> str:
    """`value` rounded to `decimals` places; a negative count rounds to tens, hundreds, ..."""
    rounded = round(value, decimals) + 0.0  # no -0.00
    return f"{rounded:.{max(decimals, 0)}f}"


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, whole numbers never cut."""
    if value == 0:
        return "0"
    if abs(value) < SMALLEST_PLAIN:
        return f"{value:.1e}".replace("e-0", "e-")
    return fixed(value, max(0, _decimals_for(value, digits)))


def with_interval(value: float, low: float, high: float) -> str:
    """`12.3 [12.1, 12.5]`, each to the digits that the half width justifies."""
    decimals = _justified_decimals(value, low, high)
    return f"{fixed(value, decimals)} [{fixed(low, decimals)}, {fixed(high, decimals)}]"


def justified(value: float, low: float, high: float) -> str:
    """The value alone, to the digits that its interval justifies."""
    return fixed(value, _justified_decimals(value, low, high))


def _justified_decimals(value: float, low: float, high: float) -> int:
    """The decimal place of the half width, rounded to one digit; two to four digits of `value`, which may be 0."""
    half = (high - low) / 2
    value = value or half
    if value == 0:
        return 0
    most, fewest = _decimals_for(value, MOST_DIGITS), _decimals_for(value, 2)
    if half <= 0:
        return most
    place = _decimals_for(half, 1)
    place = _decimals_for(round(half, place), 1)  # 0.96 rounds to 1: one place less
    return max(min(place, most), fewest)


def ratio_text(ratio: float) -> str:
    """A ratio to two decimals, or three significant digits from ten on."""
    return fixed(ratio, 2) if ratio < 10 else significant(ratio)


def _decimals_for(value: float, digits: int) -> int:
    """How many decimals show `digits` significant digits of a value other than 0."""
    return digits - 1 - math.floor(math.log10(abs(value)))
