"""Tasks and messages of the processes of a check."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ctxbench.base.mode import Mode
from ctxbench.model.case import Case

# Commands to one side of a pair, a byte each: prepare the next row; time a block of it.
NEXT, BLOCK = b"n", b"b"


@dataclass(frozen=True, slots=True)
class PairRow:
    """A row of a pair; by the share `inject` more passes are run than are counted."""

    case: Case
    mode: Mode
    inject: float = 0.0


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call of an operator, the shape that it makes (empty: it makes none), its line (`block.py:12`) and the text."""

    op: str
    shape: tuple[int, ...]
    line: str
    text: str


@dataclass(frozen=True, slots=True)
class Operators:
    """The calls of a forward pass in their order; none where they are not known."""

    calls: Sequence[WrittenCall]


@dataclass(frozen=True, slots=True)
class PredictedPass:
    """Of a mode in the baseline and now: how many kernels a pass starts, and its predicted time in words.

    `change` is the later time over the earlier with the ends of its 80 % band. `unknown` says why there is none, and
    `untold` why the times are known too badly to be told.
    """

    mode: Mode
    kernels: tuple[int, int] = (0, 0)
    times: tuple[str, str] = ("", "")
    change: tuple[float, float, float] = (math.nan, -math.inf, math.inf)
    unknown: str = ""
    untold: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """By which share of its Euclidean length a part of what a case computes differs, in a dtype.

    A `share` up to `bound` is rounding; by the share `noise` two passes of the baseline differ.
    """

    part: str
    dtype: str
    share: float
    bound: float
    noise: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a case's outputs with a baseline's.

    `broken` are sentences on what is no result, `notes` on what is other, `weights` on weights that the sides do not
    share. Of the `repaired` and the `infinite` parts the baseline has NaN or infinity; now the first have none.
    `same_code`: the files of the tree that were imported for it are equal, but for comments, layout and docstrings.
    `right` is a sentence on whose gradients are those of the function; empty where they agree, or it cannot be told.
    """

    differences: list[Difference]
    broken: list[str]
    notes: list[str]
    weights: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    infinite: list[str] = field(default_factory=list)
    same_code: bool = False
    right: str = ""
