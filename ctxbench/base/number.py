"""A number: its value, interval and origin, what it is beside another one, and how it is written.

Counts are compared exactly. Two times of one run are compared round by round: each round gives the ratio of two
processes that are neighbours in time, and Student's interval of the mean log ratio decides. The ratio of two predicted
times on one device has a band of its own: what is wrong of both in the same way cancels. A predicted and a measured one
are not compared.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal

from ctxbench.base import load as machine_load
from ctxbench.base.limits import FEWEST_PROCESSES

# `published`: only papers have it, ctxbench does not measure it.
NumberOrigin = Literal["counted", "predicted", "measured", "published"]
# The share of passes in the band of a predicted time, and its half width in standard deviations.
CONFIDENCE = 0.8
CONFIDENCE_SDS = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
# Of a predicted time whose ends are more than this factor apart no number is told, nor of one of which more than this
# share is in classes that nothing measured.
WIDEST, MOST_UNMEASURED = 3.0, 0.5
NOT_KNOWN = "not known"
# The source of error of a time that the host decides, and what two such times do not share of it: the host's time for
# an operator differs between blocks by this, as launch-bound blocks of half A on an H200 show (docs/validation.md).
HOST, HOST_OWN_SD = "host", 0.27
# The sources of error that no two predicted times share: the scatter of kernels, and that of training passes beyond it.
KERNELS, TRAINING = OWN_SOURCES = ("kernels", "training")
# A pass on a CPU whose mask makes numbers below the least normal one of float32.
DENORMALS = "denormal numbers"
# Intervals that are this many times apart are told apart even where other work disturbed the times, but by no number.
CLEAR_FACTOR = 5.0

MOST_DIGITS = 4
# What is smaller is written as 8.3e-17, what is larger as 2e+10.
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-4, 1e9
# Decimals of a ratio: of one without an interval, and the most that tell it from 1.
RATIO_DECIMALS, MOST_DECIMALS = 2, 9


@dataclass(frozen=True)
class Number:
    """A value and the interval from `low` to `high` around it.

    NaN: there is no interval, as of a count. Infinite: there should be one, and it is not known, as of a time of one
    process. Of a measured time it has 95 %, of a predicted one it is the band.
    Of a measured time, `processes` holds the median of each process by its round, and `others_share` which share of the
    cores other work kept busy meanwhile. Of a predicted one, `errors` are the parts of its error by source, standard
    deviations of its logarithm: those of one source are the same error in every time on a device, but for OWN_SOURCES.
    `lacks` says what it does not include, so that it is a lower bound. `unknown` says why a predicted time is known too
    badly to be told: it has an order beside others, and no text. `kernels` is then what those of the pass take, as text
    in milliseconds: of one whose time is not known since the host may decide it.
    `is_ratio`: it says how many times another number it is, and is not written as 1 where it is known to differ.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    _: KW_ONLY
    processes: Mapping[int, float] = field(default_factory=dict)
    others_share: float | None = None
    origin: NumberOrigin = "counted"
    errors: Mapping[str, float] = field(default_factory=dict)
    lacks: str = ""
    unknown: str = ""
    kernels: str = ""
    is_ratio: bool = False

    def __eq__(self, other: object) -> bool:
        """Compare all fields; NaN is equal to NaN."""
        return isinstance(other, Number) and self._comparable == other._comparable

    @property
    def _comparable(self) -> list[Any]:
        return [None if value != value else value for value in vars(self).values()]

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.high - self.low)

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; of a number that has none, the value."""
        return (self.value, self.value) if math.isnan(self.low) else (self.low, self.high)

    @property
    def disturbed(self) -> bool:
        return machine_load.disturbed(self.others_share)

    @property
    def reason_not_comparable(self) -> str:
        """Reason for no verdict on this number; empty if one is possible."""
        return f"it does not include {self.lacks}" if self.lacks else self.doubt

    @property
    def doubt(self) -> str:
        """Reason against what was measured; empty if there is none."""
        if self.disturbed:
            return f"other work kept {self.others_share:.0%} of the cores busy"
        return f"fewer than {FEWEST_PROCESSES} processes" if self.high == math.inf else ""

    def map_monotonic(self, made: Callable[[float], float]) -> "Number":
        """Apply a monotonic function to value and interval."""
        low, high = sorted(map(made, self.ends)) if self.has_interval else (self.low, self.high)
        processes = {number: made(value) for number, value in self.processes.items()}
        return replace(self, value=made(self.value), low=low, high=high, processes=processes)

    def over(self, unit: float) -> "Number":
        """The number in a unit that stands for so many."""
        return self.map_monotonic(lambda value: value / unit)

    def text(self, digits: int = 3, decimals: int | None = None, sign: str = "") -> str:
        """The value and its interval: `12.3 [12.1, 12.5]`; see `texts`."""
        return " ".join(filter(None, self.texts(digits, decimals, sign)))

    def told(self, unit: str) -> str:
        """`12.3 [12.1, 12.5]` and the unit; of one that is too badly known, `not known` and the reason."""
        return f"{NOT_KNOWN}: {self.why}" if self.unknown else f"{self.text()} {unit}"

    @property
    def why(self) -> str:
        """Reason to tell no number, and what is known nevertheless."""
        return self.unknown + f"; the kernels alone take {self.kernels} ms" * bool(self.kernels)

    def texts(self, digits: int = 3, decimals: int | None = None, sign: str = "") -> tuple[str, str]:
        """The value, `12.3`, and the interval, `[12.1, 12.5]` or empty, to the digits that the half width justifies.

        A value without an interval has `digits` significant ones. With `decimals` both have so many decimals. With a
        sign "+" what is not below 0 has one. One that is too badly known to be told is `not known`.
        """
        if self.unknown:
            return NOT_KNOWN, ""
        if decimals is None and not self.has_interval and not self.is_ratio:
            return significant(self.value, digits, sign), ""
        places = self._decimals() if decimals is None else decimals
        value, low, high = (fixed(each, places, sign) for each in (self.value, *self.ends))
        return value, f"[{low}, {high}]" if self.has_interval else ""

    def _decimals(self) -> int:
        """As many as the interval justifies; of a ratio, so many that it looks as far from 1 as it is."""
        if self.has_interval:
            places = _justified_decimals(self.value, self.low, self.high)
        else:
            places = max(min(_decimals_for(self.value or 1, 3), RATIO_DECIMALS), 0)
        low, high = self.ends
        if self.is_ratio and not low <= 1 <= high:
            while places < MOST_DECIMALS and 1 in (round(low, places), round(high, places)):
                places += 1
        return places


def reason_unknown(
    low: float, high: float, errors: Mapping[str, float], unmeasured: float = 0.0, classes: Sequence[str] = ()
) -> str:
    """Reason to tell no number of a time that was predicted to lie between `low` and `high`; empty for none.

    Of the time the share `unmeasured` is in `classes` of kernels that nothing measured. `errors` are its parts.
    """
    if HOST not in errors and unmeasured > MOST_UNMEASURED:
        return f"{unmeasured:.0%} of the time is in {', '.join(classes)}, which nothing measured"
    if not WIDEST * low < high < math.inf:
        return ""
    apart = f"{high / low:.2g}"
    if HOST in errors:
        return f"the host's time to launch the kernels decides, whose band is a factor of {apart} wide"
    if DENORMALS in errors:
        return (
            f"a CPU takes far longer for the denormal numbers of its mask, so that its band is a factor of {apart} wide"
        )
    may = "the host's time to launch the kernels may decide, so that " * (_factor(errors) ** 2 <= WIDEST)
    return f"{may}its band is a factor of {apart} wide"


def kernels_alone(ms: float, errors: Mapping[str, float], unmeasured: float = 0.0) -> str:
    """The time of kernels with the band that their `errors` give, as text; "" where too little of it is known."""
    factor = _factor(errors)
    is_known = ms > 0 and factor**2 <= WIDEST and unmeasured <= MOST_UNMEASURED
    return Number(ms, ms / factor, ms * factor).text() if is_known else ""


def _factor(errors: Mapping[str, float]) -> float:
    """The end of a band with these errors over its middle."""
    return math.exp(CONFIDENCE_SDS * math.hypot(*errors.values()))


def fixed(value: float, decimals: int, sign: str = "") -> str:
    """`value` rounded to `decimals` places; a negative count rounds to tens, hundreds, ..."""
    if abs(value) >= LARGEST_PLAIN:
        return f"{value:{sign}.0e}"
    rounded = round(value, decimals) + 0.0  # no -0.00
    return f"{rounded:{sign}.{max(decimals, 0)}f}"


def significant(value: float, digits: int = 3, sign: str = "") -> str:
    """`value` to `digits` significant digits, whole numbers never cut."""
    if 0 < abs(value) < SMALLEST_PLAIN:
        return f"{value:{sign}.1e}".replace("e-0", "e-")
    return fixed(value, max(0, _decimals_for(value, digits)) if value else 0, sign)


def _justified_decimals(value: float, low: float, high: float) -> int:
    """The decimal place of the half width, rounded to one digit; two to four digits of `value`, which may be 0.

    Where the interval holds 0, two digits of the half width are enough.
    """
    half = (high - low) / 2
    value = value or half
    if value == 0:
        return 0
    most, fewest = _decimals_for(value, MOST_DIGITS), _decimals_for(value, 2)
    if half <= 0:
        return most
    if low <= 0 <= high:
        fewest = min(fewest, max(_decimals_for(half, 2), 0))
    place = _decimals_for(half, 1)
    place = _decimals_for(round(half, place), 1)  # 0.96 rounds to 1: one place less
    return max(min(place, most), fewest)


def _decimals_for(value: float, digits: int) -> int:
    """Number of decimals that show `digits` significant digits of a value other than 0."""
    return digits - 1 - math.floor(math.log10(abs(value)))


def reason_not_comparable(first: Number, second: Number) -> str:
    """Reason for no verdict on the two numbers; empty if one is possible."""
    if first.origin != second.origin:
        return f"one is {first.origin}, the other {second.origin}"
    if CLEAR_FACTOR * first.high < second.low or CLEAR_FACTOR * second.high < first.low:
        return ""
    if first.lacks == second.lacks:
        return first.doubt or second.doubt
    return first.reason_not_comparable or second.reason_not_comparable


def ratio(first: Number, second: Number) -> Number:
    """The first over the second, from the rounds that both have; without an interval if these are fewer than three.

    Of two predicted times, the band has the sources of error in which the two differ.
    """
    from ctxbench.base.statistics import t_interval  # imports numpy, which names and columns do not need

    if first.origin == second.origin == "predicted" and first.has_interval and second.has_interval:
        return _predicted(first, second)
    rounds = sorted(first.processes.keys() & second.processes.keys())
    if len(rounds) < FEWEST_PROCESSES:
        return Number(first.value / second.value, is_ratio=True)
    logs = [math.log(first.processes[number] / second.processes[number]) for number in rounds]
    low, high, _ = t_interval(logs)
    return Number(math.exp(math.fsum(logs) / len(logs)), math.exp(low), math.exp(high), is_ratio=True)


def _predicted(first: Number, second: Number) -> Number:
    """The ratio of two predicted times; without the parts of their errors, as far as both bands allow."""
    if not (first.errors and second.errors):
        return Number(first.value / second.value, first.low / second.high, first.high / second.low, is_ratio=True)
    shared = [source for source in {**first.errors, **second.errors} if source not in OWN_SOURCES]
    apart = [first.errors.get(source, 0.0) - second.errors.get(source, 0.0) for source in shared]
    own = [each.errors.get(source, 0.0) for each in (first, second) for source in OWN_SOURCES]
    own += [HOST_OWN_SD for each in (first, second) if HOST in each.errors]
    factor = math.exp(CONFIDENCE_SDS * math.hypot(*apart, *own))
    value = first.value / second.value
    return Number(value, value / factor, value * factor, is_ratio=True)


def ratio_of_runs(first: Number, second: Number) -> Number:
    """The first over the second, of two runs; its interval is not known where one has none.

    On a log scale each limit's distance is the root of the sum of squares (MOVER: Zou and Donner, Construction of
    confidence limits about effect measures, 2008).
    """
    value = first.value / second.value
    if not (first.has_interval and second.has_interval):
        return rough_ratio(value)
    down = math.hypot(math.log(first.value / first.low), math.log(second.high / second.value))
    up = math.hypot(math.log(first.high / first.value), math.log(second.value / second.low))
    return Number(value, value * math.exp(-down), value * math.exp(up), is_ratio=True)


def rough_ratio(value: float) -> Number:
    """A ratio of which no interval is known."""
    return Number(value, 0.0, math.inf, is_ratio=True)


def order(first: Number, second: Number) -> int:
    """-1 if the first is smaller, 1 if larger, 0 if they are equal, not told apart, or without a verdict.

    Times with fewer than three common rounds are told apart if their intervals do not overlap.
    """
    if reason_not_comparable(first, second):
        return 0
    found = ratio(first, second) if second.value else None
    if found and found.has_interval:
        return int(found.low > 1) - int(found.high < 1)
    (low, high), (other_low, other_high) = first.ends, second.ends
    return int(low > other_high) - int(high < other_low)


def order_without_ratio(first: Number, second: Number) -> bool:
    """Return whether two times that differ significantly have no ratio, since other work disturbed one."""
    return bool(first.reason_not_comparable or second.reason_not_comparable)


def times(first: Number, second: Number) -> str:
    """Ratio of the first to the second: `1.60x [1.55, 1.66]`, or `1.60x`; `far` if no more is known."""
    if order_without_ratio(first, second):
        return "far"
    value, interval = ratio(first, second).texts()
    return f"{value}x {interval}".rstrip()
