"""The bounds of the numbers that a person gives, and of intervals: each with its reason."""

import math
import re
from dataclasses import dataclass
from typing import Any

from ctxbench.base.errors import UsageError

# An interval over fewer processes would be hundreds of standard errors wide.
FEWEST_PROCESSES = 3


@dataclass(frozen=True)
class Limit:
    """Numbers from `least` to `most`; `words` say the same with the reason, after "it must be"."""

    words: str
    least: float
    most: float

    def check(self, value: Any) -> Any:
        """The number. UsageError for one outside and for nan."""
        if not self.least <= value <= self.most:
            raise UsageError(f"it must be {self.words}")
        return value

    def check_option(self, name: str, value: float | None) -> float | None:
        """The number. UsageError that names the option for one outside; None is an option that is not given."""
        try:
            self.check(self.least if value is None else value)
        except UsageError as error:
            shown = f"{value:g}" if isinstance(value, float) else value
            raise UsageError(f"{name} {shown}: {error}") from None
        return value


_ABOVE_0 = math.ulp(0.0)
_WEEK_S = 7 * 24 * 3600

THREADS = Limit(
    "from 1 to 1,024: every one takes a thread of the system, which has a few thousand for all programs", 1, 1024
)
PROCESSES = Limit("from 1 to 1,000: every one starts a new interpreter", 1, 1000)
# Blocks, passes, steps of a training.
REPEATS = Limit("from 1 to 1,000,000: every one takes time", 1, 1_000_000)
SECONDS = Limit("more than 0 and at most 604,800 seconds, which is a week", _ABOVE_0, _WEEK_S)
PAUSE = Limit("from 0 to 604,800 seconds, which is a week", 0, _WEEK_S)
# Relative changes: a time that is eleven times as long needs no statistics.
SHARE = Limit("more than 0 and less than 10, which is 1000 %", _ABOVE_0, math.nextafter(10, 0))
MEMORY_GIB = Limit("more than 0 and at most 1,048,576 GiB, which no machine has", _ABOVE_0, 2**20)
MINUTES = Limit("more than 0 and at most 10,080 minutes, which is a week", _ABOVE_0, _WEEK_S / 60)
# What torch takes for a generator.
SEED = Limit("a 64-bit integer", -(2**63), 2**63 - 1)
# B, C, H and W of an input, and their product: 4 TiB in float32. Bytes stay far below 2^63, where torch's sizes end.
NUMBERS = Limit("from 1 to 2^40: no memory holds an input of more elements", 1, 2**40)
# Each is a row that takes seconds, and all of them are listed first.
CASES = 10_000


def integer(text: str) -> int:
    """An integer in the digits 0 to 9. ValueError for any other text, such as 1_000."""
    if not re.fullmatch(r"\s*[-+]?[0-9]+\s*", text, re.ASCII):
        raise ValueError(f"{text!r} is no integer")
    return int(text)


def decimal(text: str) -> float:
    """A number such as 2, 0.5 or 1e-3, in the same digits. ValueError for any other text, such as inf."""
    if not re.fullmatch(r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?\s*", text, re.IGNORECASE | re.ASCII):
        raise ValueError(f"{text!r} is no number")
    return float(text)
