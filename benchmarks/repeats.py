"""Agreement of several runs of the same cases: for a step of gpu.py and for research/repeatability.py."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ctxbench.base.load import disturbed
from ctxbench.base.mode import MODES


@dataclass(frozen=True)
class Row:
    """A case and a mode over several runs: medians, ends of the intervals (ms), whether other work disturbed it."""

    case: str
    mode: str
    ms: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    marked: Sequence[bool]

    def half(self, run: int) -> float:
        """Half the width of a run's interval on the scale of logarithms."""
        return math.log(self.high[run] / self.low[run]) / 2

    def moves(self) -> list[float]:
        """The logarithm of the ratio of two runs' medians, the larger over the smaller, for each pair of runs."""
        return [abs(math.log(a / b)) for a, b in itertools.combinations(self.ms, 2)]

    def agree(self) -> list[bool]:
        """Return whether two runs differ by no more than both intervals explain, for each pair of runs."""
        pairs = itertools.combinations(range(len(self.ms)), 2)
        explained = [math.hypot(self.half(a), self.half(b)) for a, b in pairs]
        return [move <= most for move, most in zip(self.moves(), explained, strict=True)]

    def contained(self) -> list[bool]:
        """Return whether a run's interval contains another run's median, for each ordered pair of runs."""
        return [self.low[a] <= self.ms[b] <= self.high[a] for a, b in itertools.permutations(range(len(self.ms)), 2)]


def rows_of(frames: Sequence[pd.DataFrame]) -> list[Row]:
    """The timed rows that all runs have an interval of."""
    found = []
    indexed = [frame.set_index("case") for frame in frames]
    for case, mode in itertools.product(indexed[0].index, MODES):
        columns = [f"latency_{mode}_{name}" for name in ("ms", "low_ms", "high_ms")]
        ms, low, high = ([float(frame.loc[case, column]) for frame in indexed] for column in columns)
        if not np.isnan([ms, low, high]).any():
            marked = [disturbed(float(frame.loc[case, "others_share"])) for frame in indexed]
            found.append(Row(str(case), mode, ms, low, high, marked))
    return found


def share(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)} ({np.mean(found):.0%})" if found else "none"
