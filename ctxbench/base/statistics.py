"""Statistics of samples: the median and its interval, a stopping rule, a t interval, Holm, a power law."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ctxbench.base.limits import FEWEST_PROCESSES

FloatArray = NDArray[np.float64]
StopReason = Literal["interval", "budget"]

CONFIDENCE = 0.95
# Samples at the first look of a stopping rule, and how much their count grows until the next.
FIRST_LOOK, LOOK_GROWTH = 30, 1.5
# Scales a median absolute deviation to the standard deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826
OUTLIER_SIGMAS = 3.0
# The correlation time of an AR(1) series with this lag-1 correlation is 39 samples; more would look like drift.
HIGHEST_LAG_ONE = 0.95


class Interval(NamedTuple):
    """A range and the probability with which it contains the true value."""

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Summary:
    """Summary of a series of samples; `median`, `low` and `high` are in the samples' own unit.

    `low` and `high` contain the true median with the probability `confidence`. Where the samples are too
    few for the confidence asked for, they are the smallest and the largest sample and `confidence` is
    what these two cover; a single sample has no interval (NaN, confidence 0).

    `relative_half_width`: (high - low) / (2 median).
    `drift`: the second half's median over the first half's, minus 1.
    `autocorrelation`: of each sample with the next.
    `spread`: the scaled median absolute deviation over the median.
    `outliers`: samples beyond 3 scaled median absolute deviations of the median. They stay in.
    """

    median: float
    low: float
    high: float
    confidence: float
    relative_half_width: float
    samples: int
    drift: float
    autocorrelation: float
    spread: float
    outliers: int


def summarise(samples_in_time_order: ArrayLike) -> Summary:
    """Summarise `[n]` positive samples; ValueError if there is none or one is not a positive number."""
    samples = _positive(samples_in_time_order, "sample")
    median = float(np.median(samples))
    interval = median_interval(samples)
    half = samples.size // 2
    drift = float(np.median(samples[-half:]) / np.median(samples[:half]) - 1) if half else math.nan
    deviations = np.abs(samples - median)
    deviation = MAD_TO_SIGMA * float(np.median(deviations))
    return Summary(
        median=median,
        low=interval.low,
        high=interval.high,
        confidence=interval.confidence,
        relative_half_width=(interval.high - interval.low) / (2 * median),
        samples=samples.size,
        drift=drift,
        autocorrelation=float(_autocorrelations(samples)[1]) if samples.size > 2 else math.nan,
        spread=deviation / median,
        outliers=int(np.count_nonzero(deviations > OUTLIER_SIGMAS * deviation)),
    )


def median_interval(samples_in_time_order: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The interval of the median between two order statistics, widened for autocorrelation.

    For n independent samples the ranks are the sign test's, n/2 -+ z sqrt(n)/2 (Conover, Practical Nonparametric
    Statistics, section 3.2). A correlation time of t samples leaves n/t independent ones, so the ranks lie sqrt(t)
    times as far apart. Where that passes the ends of the sample, the interval is [smallest, largest], which covers
    1 - 2^(1 - n/t).

    The tests check the real coverage of a 95 % interval: 94.5 to 99 % for independent samples and for AR(1) noise up to
    phi = 0.6; at phi = 0.9, 87 % with 30 samples and 95 % with 100; under slow waves of which a sample shows the
    lesser part, 86 % with 30, 89 % with 100, 95 % with 300.
    """
    ordered = np.sort(np.asarray(samples_in_time_order, dtype=np.float64))
    count = ordered.size
    if count < 2:
        return Interval(math.nan, math.nan, 0.0)
    time = correlation_time(samples_in_time_order)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count * time) / 2
    rank = math.floor((count + 1) / 2 - reach)
    if rank < 1:
        attained = min(confidence, max(0.0, 1 - 2 ** (1 - count / time)))
        return Interval(float(ordered[0]), float(ordered[-1]), attained)
    return Interval(float(ordered[rank - 1]), float(ordered[count - rank]), confidence)


def correlation_time(samples_in_time_order: ArrayLike) -> float:
    """Autocorrelation time in samples per independent one; 1 for independent or constant ones.

    Taken from the samples' ranks, so that a spike does not hide the correlation: the larger of an AR(1)
    model's and Geyer's initial positive sequence (Practical Markov Chain Monte Carlo, 1992), each
    corrected for its bias in short series. The first serves short series, the second slow waves under noise.
    """
    _, place, ties = np.unique(
        np.asarray(samples_in_time_order, dtype=np.float64), return_inverse=True, return_counts=True
    )
    count = place.size
    if count < 4 or ties.size == 1:
        return 1.0
    mean_rank = np.cumsum(ties) - (ties - 1) / 2
    correlations = _autocorrelations(mean_rank[place])

    first = min(max((correlations[1] * count + 1) / (count - 3), 0.0), HIGHEST_LAG_ONE)
    autoregressive = (1 + first) / (1 - first)

    even = count // 2 * 2
    pairs = correlations[:even:2] + correlations[1:even:2]
    falling = pairs <= 0
    kept = int(np.argmax(falling)) if falling.any() else pairs.size
    geyer = (2 * pairs[:kept].sum() - 1) * (1 + 2 * kept / count)
    return float(max(autoregressive, geyer, 1.0))


@dataclass(frozen=True)
class StoppingRule:
    """Ends a measurement once the median's interval is narrow enough, or the budget is spent.

    The interval is looked at only at FIRST_LOOK samples and whenever their count has since grown by LOOK_GROWTH: a rule
    that looks after every sample stops on lucky stretches, and its interval then covers less than it says.
    """

    target: float
    budget_s: float

    def decide(self, samples: Sequence[float], elapsed_s: float) -> StopReason | None:
        """Call after each sample: "interval" (narrow enough), "budget" (time is up) or None (go on)."""
        if self.looks_at(len(samples)):
            summary = summarise(samples)
            if summary.confidence >= CONFIDENCE and summary.relative_half_width <= self.target:
                return "interval"
        return "budget" if elapsed_s >= self.budget_s else None

    def looks_at(self, count: int) -> bool:
        """Return whether this count of samples is one of the planned looks."""
        look = FIRST_LOOK
        while look < count:
            look = math.ceil(look * LOOK_GROWTH)
        return look == count


def t_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Student's interval of the mean of independent values; one value alone says nothing (infinite)."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("There are no values to take a mean of.")
    if array.size == 1:
        return Interval(-math.inf, math.inf, confidence)
    reach = t_quantile(confidence, array.size) * float(array.std(ddof=1)) / math.sqrt(array.size)
    mean = float(array.mean())
    return Interval(mean - reach, mean + reach, confidence)


def process_interval(medians: ArrayLike) -> Interval:
    """Student's interval on the logarithms of the medians of independent processes, widened to hold their median.

    NaN with confidence 0 for fewer than FEWEST_PROCESSES.
    """
    array = _positive(medians, "median")
    if array.size < FEWEST_PROCESSES:
        return Interval(math.nan, math.nan, 0.0)
    interval = t_interval(np.log(array))
    median = float(np.median(array))
    return Interval(min(math.exp(interval.low), median), max(math.exp(interval.high), median), interval.confidence)


# scipy.stats has these tests too, but takes 25 times as long (the gate's simulations make a million tests), and warns
# of equal values. What measures needs none of them, and is spared the import of scipy, 0.4 s for each process.
def t_quantile(confidence: float, count: int) -> float:
    """Half the width of Student's two-sided interval of `count` values, in standard errors."""
    from scipy import special

    return float(special.stdtrit(count - 1, (1 + confidence) / 2))


def p_value_above(distance: float, error: float, count: int) -> float:
    """Student's one-sided p value of a mean of `count` values that lies `distance` above a bound.

    `error` is the mean's standard error; where it is 0, the p value is 0 or 1.
    """
    from scipy import special

    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(count - 1, -distance / error))


def rate_at_most(count: int, of: int) -> float:
    """Clopper and Pearson's one-sided bound, at 95 %, on the rate of what was seen so often in independent trials."""
    from scipy.stats import beta

    return float(beta.ppf(0.95, count + 1, of - count)) if count < of else 1.0


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's adjusted p values (A simple sequentially rejective procedure, 1979), in the order given."""
    array = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(array)
    adjusted = np.empty_like(array)
    adjusted[order] = np.maximum.accumulate(array[order] * np.arange(array.size, 0, -1))
    return np.minimum(adjusted, 1.0)


def _autocorrelations(samples: FloatArray) -> FloatArray:
    """The autocorrelation at every lag, `[n]` to `[n]`; zero beyond lag 0 for constant samples."""
    centred = samples - samples.mean()
    spectrum = np.fft.rfft(centred, 2 * samples.size)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, 2 * samples.size)[: samples.size]
    if np.ptp(samples) == 0:
        return np.zeros(samples.size)
    return np.asarray(covariances / covariances[0], dtype=np.float64)


def _positive(values: ArrayLike, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"A series of one or more numbers is needed, one {name} each.")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"Every {name} must be a positive, finite number.")
    return array
