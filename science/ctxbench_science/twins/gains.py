"""Gains of blocks over the plain body, and the noise of one training."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import fmean

import numpy as np

from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.number import Number
from ctxbench.base.statistics import t_interval, t_quantile
from ctxbench_science.twins.records import ACCURACY, PLAIN, Records, Setting, records

# From so many settings on a difference has an interval of its own; with fewer it has that of the noise.
FEWEST_SETTINGS = 3


@dataclass(frozen=True)
class Noise:
    """Standard deviation of one published accuracy around what the block and the group explain, in points.

    `freedom` is the number of degrees of freedom that it rests on.
    """

    sd: float
    freedom: int

    @property
    def pair(self) -> float:
        """Half the width of the 95 % interval of the difference of two trainings, in points."""
        return t_quantile(0.95, self.freedom + 1) * math.sqrt(2) * self.sd


@dataclass(frozen=True)
class Twins:
    """Comparisons of the blocks of one source."""

    source: Records

    @cached_property
    def blocks(self) -> list[str]:
        """Blocks that have a twin, the largest gain over PLAIN first; those without PLAIN beside them at the end."""
        found = dict.fromkeys(block for group in self.source.twins for block in group)
        gains = {block: self._gain_or_nan(block) for block in found}
        return sorted(found, key=lambda block: (math.isnan(gains[block]), -gains[block]))

    @cached_property
    def noise(self) -> Noise:
        """The noise of one training, from accuracies that should be equal (`Records.repeats`).

        Each accuracy is the sum of what its block has, of what its group has, and of the noise. A block has the same
        in all recipes of a setting, or in all settings.
        """
        rows: list[tuple[object, int, float]] = []
        for setting, groups in self.source.by_setting().items():
            kept = setting if self.source.repeats == "recipe" else None
            for group in groups:
                number = rows[-1][1] + 1 if rows else 0
                rows += [((kept, block), number, value) for block, value in group.items()]
        blocks = [*dict.fromkeys(block for block, *_ in rows)]
        design = np.zeros((len(rows), len(blocks) + len(self.source.twins)))
        for line, (block, number, _) in enumerate(rows):
            design[line, blocks.index(block)] = design[line, len(blocks) + number] = 1
        values = np.array([row[2] for row in rows])
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        freedom = len(rows) - int(np.linalg.matrix_rank(design))
        if freedom < 1:
            raise ValueError("no two of these records should be equal")
        return Noise(math.sqrt(float(((values - fitted) ** 2).sum()) / freedom), freedom)

    def differences(self, first: str, second: str, figure: str = ACCURACY) -> dict[Setting, float]:
        """Difference of `first` and `second` in each setting that has both as twins: the mean over its recipes."""
        found = {}
        for setting, groups in self.source.by_setting(figure).items():
            if own := [group[first] - group[second] for group in groups if {first, second} <= group.keys()]:
                found[setting] = fmean(own)
        return found

    def difference(self, first: str, second: str = PLAIN) -> Number:
        """The mean difference over settings in points, with its 95 % interval.

        It is Student's over settings, or with fewer than FEWEST_SETTINGS that of the noise. UsageError where the two
        are never twins.
        """
        values = self.values(first, second)
        if len(values) >= FEWEST_SETTINGS:
            low, high, _ = t_interval(values)
        else:
            reach = t_quantile(0.95, self.noise.freedom + 1) * self.error(first, second)
            low, high = fmean(values) - reach, fmean(values) + reach
        return Number(fmean(values), low, high, origin="published")

    def error(self, first: str, second: str) -> float:
        """Standard error of a mean difference by the noise of training alone."""
        found = [
            sum({first, second} <= group.keys() for group in groups) for groups in self.source.by_setting().values()
        ]
        counts = [count for count in found if count]
        return self.noise.sd * math.sqrt(2 * sum(1 / count for count in counts)) / len(counts)

    def values(self, first: str, second: str) -> list[float]:
        """The differences of two blocks over settings. UsageError where they are never twins."""
        for block in (first, second):
            if block not in self.blocks:
                raise unknown("block with twins", block, self.blocks)
        values = [*self.differences(first, second).values()]
        if not values:
            raise UsageError(f"{first} and {second} are never twins in {self.source.title}")
        return values

    def _gain_or_nan(self, block: str) -> float:
        values = self.differences(block, PLAIN).values()
        return fmean(values) if values else math.nan


@cache
def twins(name: str) -> Twins:
    """The comparisons of a source, one of `records.NAMES`."""
    return Twins(records(name))
