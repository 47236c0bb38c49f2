"""Straight lines through points."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ctxbench.base.number import Number
from ctxbench.base.statistics import t_quantile


@dataclass(frozen=True)
class FittedLine:
    """y = intercept + slope * x; the slope through two points has no interval."""

    slope: Number
    intercept: float


def fit_line(x: ArrayLike, y: ArrayLike) -> FittedLine:
    """Least squares of y on x, both `[n]`; Student's 95 % interval of the slope. ValueError for fewer than two x."""
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if across.ndim != 1 or across.size != up.size:
        raise ValueError(f"A fit needs as many x as y, not {across.size} and {up.size}.")
    if across.size == 0 or np.ptp(across) == 0:
        raise ValueError("A fit needs two or more different x.")
    from scipy import stats  # half a second, which measuring processes need not spend

    line = stats.linregress(across, up)
    # The fit leaves one degree of freedom less than a mean does.
    error = float(line.stderr) if np.ptp(up) else 0.0  # scipy has NaN for a constant y
    reach = t_quantile(0.95, across.size - 1) * error if across.size > 2 else math.nan
    slope = float(line.slope)
    return FittedLine(Number(slope, slope - reach, slope + reach), float(line.intercept))
