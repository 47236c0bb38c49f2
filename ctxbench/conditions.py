"""What tells the cases of a module apart."""

import math
import operator
from typing import Any

from ctxbench import limits
from ctxbench.errors import UsageError

Shape = tuple[int, int, int, int]


def parse_shape(value: Any) -> Shape:
    """A shape from `1,512,128,128`, a list or a tuple. UsageError unless it is four integers of `limits.NUMBERS`."""
    parts = value.replace("x", ",").split(",") if isinstance(value, str) else value
    try:
        numbers = [_integer(part) for part in parts]
    except (TypeError, ValueError):
        raise UsageError(f"shape {value!r} is not four integers B,C,H,W, such as 1,512,128,128") from None
    if len(numbers) != 4:
        raise UsageError(f"shape {value!r} has {len(numbers)} numbers; it takes four, B,C,H,W, such as 1,512,128,128")
    if min(numbers) < 1:
        raise UsageError(f"shape {value!r} holds {min(numbers)}; each of B,C,H,W is at least 1")
    try:
        limits.NUMBERS.check(math.prod(numbers))
    except UsageError as error:
        raise UsageError(f"shape {value!r}: the product of B,C,H,W is too large; {error}") from None
    batch, channels, height, width = numbers
    return batch, channels, height, width


def _integer(part: Any) -> int:
    """An integer, which True is not. TypeError or ValueError for anything else."""
    if isinstance(part, bool):
        raise TypeError
    return limits.integer(part) if isinstance(part, str) else operator.index(part)
