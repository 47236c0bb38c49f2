"""How a number is written: as many digits as its interval, or the number that it stands beside, justifies."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ctxbench.errors import UsageError

MIB = 2**20
MOST_DIGITS = 4
PREFIXES = ("", "K", "M", "G", "T", "P")


@dataclass(frozen=True)
class Unit:
    """A unit such as `M = 2^20`: its symbol and how many it stands for."""

    symbol: str
    base: int
    exponent: int

    @property
    def factor(self) -> int:
        return int(self.base**self.exponent)

    def __str__(self) -> str:
        return f"{self.symbol} = {self.base}^{self.exponent}" if self.symbol else "units"


def parse_unit(text: str, where: str) -> Unit:
    """A unit from `M = 2^20`; UsageError names `where` it stands."""
    found = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\^(\d+)\s*", text)
    if not found:
        raise UsageError(f"{where} is {text!r}; write it as a symbol and a power, such as 'M = 2^20'")
    return Unit(found[1], int(found[2]), int(found[3]))


def scaled_unit(unit: Unit, values: Iterable[float]) -> Unit:
    """The unit of the same base in which the largest value has one to three digits before the point."""
    largest = max((v for v in values if math.isfinite(v)), default=0.0)
    step = 10 if unit.base == 2 else 3
    chosen = Unit("", unit.base, 0)
    for power, symbol in enumerate(PREFIXES):
        candidate = Unit(symbol, unit.base, power * step)
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
    return f"{round(value, decimals):.{max(decimals, 0)}f}"


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, whole numbers never cut."""
    if value == 0:
        return "0"
    return fixed(value, max(0, _decimals_for(value, digits)))


def justified_decimals(value: float, low: float, high: float) -> int:
    """The decimal place of the interval's half width, rounded to one digit; never more than four digits of `value`."""
    half = (high - low) / 2
    most = _decimals_for(value, MOST_DIGITS)
    if half <= 0:
        return most
    place = _decimals_for(half, 1)
    place = _decimals_for(round(half, place), 1)  # 0.96 rounds to 1: one place less
    return min(place, most)


def with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    """The value and `[low, high]`, each to the digits that the half width justifies."""
    decimals = max(justified_decimals(value, low, high), _decimals_for(value, 1))
    return fixed(value, decimals), f"[{fixed(low, decimals)}, {fixed(high, decimals)}]"


def ratio_text(ratio: float) -> str:
    """A ratio to two decimals, or three significant digits from ten on."""
    return fixed(ratio, 2) if ratio < 10 else significant(ratio)


def _decimals_for(value: float, digits: int) -> int:
    """How many decimals show `digits` significant digits of a value other than 0."""
    return digits - 1 - math.floor(math.log10(abs(value)))
