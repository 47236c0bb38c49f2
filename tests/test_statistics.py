"""The statistics against exact cases, and the real coverage of their intervals on synthetic streams."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from ctxbench.base.fits import fit_line
from ctxbench.base.statistics import (
    StoppingRule,
    correlation_time,
    holm,
    median_interval,
    p_value_above,
    summarise,
    t_interval,
)

FloatArray = NDArray[np.float64]
Stream = Callable[[np.random.Generator, tuple[int, int]], FloatArray]

# Where 0.7 Phi(x) + 0.3 Phi(x - 5) is one half.
BIMODAL_MEDIAN = 0.5659488


def normal(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return random.normal(size=shape)


def lognormal(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return random.lognormal(0.0, 0.5, shape) - 1


def exponential(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return random.exponential(size=shape) - math.log(2)


def bimodal(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return random.normal(size=shape) + 5 * (random.random(shape) < 0.3) - BIMODAL_MEDIAN


def autoregressive(phi: float) -> Stream:
    def stream(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        steps = random.normal(size=shape) * math.sqrt(1 - phi**2)
        steps[:, 0] /= math.sqrt(1 - phi**2)
        return np.asarray(scipy.signal.lfilter([1.0], [1.0, -phi], steps, axis=1))

    return stream


def slow_wave_under_noise(random: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return autoregressive(0.9)(random, shape) + random.normal(0.0, 1.5, shape)


def coverage(stream: Stream, count: int, series: int = 1500) -> float:
    """The share of intervals that hold the true median, which is 10 in every stream."""
    values = 10 + stream(np.random.default_rng(count), (series, count))
    intervals = [median_interval(row) for row in values]
    return float(np.mean([interval.low <= 10 <= interval.high for interval in intervals]))


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize("stream", [normal, lognormal, exponential, bimodal])
def test_median_interval_covers_on_independent_noise(stream: Stream, count: int) -> None:
    assert 0.945 <= coverage(stream, count) <= 0.997


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, 300])
@pytest.mark.parametrize("phi", [0.3, 0.6])
def test_median_interval_covers_on_autocorrelated_noise(phi: float, count: int) -> None:
    assert 0.945 <= coverage(autoregressive(phi), count) <= 0.99


@pytest.mark.parametrize(
    ("stream", "count", "least", "most"),
    [
        # A correlation time of 19 samples: 30 samples are worth fewer than two.
        (autoregressive(0.9), 30, 0.84, 0.92),
        (autoregressive(0.9), 100, 0.93, 0.975),
        (autoregressive(0.9), 300, 0.945, 0.985),
        (slow_wave_under_noise, 30, 0.83, 0.91),
        (slow_wave_under_noise, 100, 0.87, 0.93),
        (slow_wave_under_noise, 300, 0.92, 0.975),
    ],
)
def test_median_interval_on_strongly_autocorrelated_noise(
    stream: Stream, count: int, least: float, most: float
) -> None:
    assert least <= coverage(stream, count) <= most


def test_plain_order_statistics_would_not_cover() -> None:
    random = np.random.default_rng(5)
    values = np.sort(autoregressive(0.6)(random, (800, 100)), axis=1)
    assert np.mean((values[:, 39] <= 0) & (values[:, 60] >= 0)) < 0.85


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (20, 6), (50, 18), (100, 40)])
def test_ranks_of_independent_samples_are_the_sign_tests(count: int, rank: int) -> None:
    # Low and high alternate (1, n, 2, n - 1, ...), so there is no positive autocorrelation.
    values = np.empty(count)
    values[::2] = np.arange(1, (count + 1) // 2 + 1)
    values[1::2] = np.arange(count, (count + 1) // 2, -1)
    assert correlation_time(values) == 1.0
    assert median_interval(values)[:2] == (rank, count + 1 - rank)
    assert scipy.stats.binom.cdf(rank - 1, count, 0.5) <= 0.025 < scipy.stats.binom.cdf(rank, count, 0.5) * 1.01


@pytest.mark.parametrize(
    ("samples", "confidence"), [([3.0, 1.0], 0.5), ([2.0, 1.0, 3.0], 0.75), ([1.0, 4.0, 2.0, 3.0, 2.5], 0.9375)]
)
def test_few_samples_claim_only_what_their_range_covers(samples: list[float], confidence: float) -> None:
    summary = summarise(samples)
    assert (summary.low, summary.high) == (min(samples), max(samples))
    assert summary.confidence == confidence


def test_one_sample_has_no_interval() -> None:
    summary = summarise([2.5])
    assert (summary.median, summary.samples, summary.confidence) == (2.5, 1, 0.0)
    assert all(map(math.isnan, (summary.low, summary.high, summary.relative_half_width, summary.drift)))


def test_a_trend_lowers_the_confidence_instead_of_narrowing_the_interval() -> None:
    summary = summarise(np.linspace(1.0, 2.0, 12))
    assert (summary.low, summary.high) == (1.0, 2.0)
    assert summary.confidence < 0.5


def test_summary_of_a_series_worked_by_hand() -> None:
    summary = summarise([1.0, 1.1, 0.9, 1.0, 1.3, 1.1, 1.2, 9.0])
    assert summary.median == pytest.approx(1.1)
    assert summary.drift == pytest.approx(1.25 / 1.0 - 1)
    # The median absolute deviation is 0.1, so the fence is at 1.1 +- 0.44; the outlier stays in.
    assert (summary.outliers, summary.samples) == (1, 8)
    assert summary.relative_half_width == pytest.approx((summary.high - summary.low) / 2.2)


def test_constant_samples_have_a_point_for_an_interval() -> None:
    summary = summarise([2.0] * 10)
    assert (summary.low, summary.high, summary.confidence) == (2.0, 2.0, 0.95)
    assert (summary.autocorrelation, summary.outliers, summary.drift) == (0.0, 0, 0.0)


def test_ties_of_a_coarse_clock_are_not_taken_for_autocorrelation() -> None:
    ticks = np.random.default_rng(0).integers(10, 12, 200).astype(float)
    assert correlation_time(ticks) < 1.5


def test_autocorrelation_and_correlation_time_of_an_autoregressive_series() -> None:
    series = 10 + autoregressive(0.6)(np.random.default_rng(1), (1, 20_000))[0]
    assert summarise(series).autocorrelation == pytest.approx(0.6, abs=0.03)
    # (1 + phi) / (1 - phi) is 4; ranks are correlated a little less than the values.
    assert 3.4 < correlation_time(series) < 4.6


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [1.0, math.inf], [1.0, 0.0], [-1.0], [[1.0, 2.0]]])
def test_summarise_refuses_what_is_no_series_of_times(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        summarise(bad)


def test_looks_are_planned_ahead() -> None:
    rule = StoppingRule(0.02, 5.0)
    assert [count for count in range(150) if rule.looks_at(count)] == [30, 45, 68, 102]


def test_stopping_reasons() -> None:
    rule = StoppingRule(target=0.02, budget_s=5.0)
    still = [1.0, 1.001] * 15
    noisy = [1.0, 1.3, 0.8, 1.2, 0.9] * 6
    assert rule.decide(still, elapsed_s=1.0) == "interval"
    assert rule.decide(still, elapsed_s=9.0) == "interval"
    assert rule.decide(still[:29], elapsed_s=1.0) is None
    assert rule.decide(noisy, elapsed_s=4.9) is None
    assert rule.decide(noisy, elapsed_s=5.0) == "budget"
    assert rule.decide([], elapsed_s=5.0) == "budget"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "least", "most"),
    [
        (normal, 0.94, 0.99),
        (exponential, 0.94, 0.99),
        (autoregressive(0.3), 0.94, 0.99),
        (autoregressive(0.6), 0.925, 0.985),
        # Short lucky stretches of a slow wave end the measurement early.
        (autoregressive(0.9), 0.84, 0.94),
        (slow_wave_under_noise, 0.78, 0.95),
    ],
)
def test_coverage_survives_stopping_when_narrow_enough(stream: Stream, least: float, most: float) -> None:
    rule = StoppingRule(target=0.02, budget_s=10.0)
    looks = [count for count in range(1100) if rule.looks_at(count)]
    held = []
    for spread in (0.02, 0.05):
        streams = 1 + spread * stream(np.random.default_rng(3), (250, looks[-1]))
        for samples in np.maximum(streams, 0.01):
            end = next((n for n in looks if rule.decide(samples[:n], elapsed_s=0.0)), looks[-1])
            interval = median_interval(samples[:end])
            held.append(interval.low <= 1 <= interval.high)
    assert least <= np.mean(held) <= most


def test_t_interval_and_test_agree_with_scipy() -> None:
    values = [0.01, 0.03, -0.02, 0.05, 0.02]
    expected = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    assert t_interval(values, 0.9)[:2] == pytest.approx((expected.low, expected.high))
    p_value = scipy.stats.ttest_1samp(values, 0.01, alternative="greater").pvalue
    error = float(scipy.stats.sem(values))
    assert p_value_above(float(np.mean(values)) - 0.01, error, 5) == pytest.approx(p_value)


def test_t_helpers_at_the_edges() -> None:
    assert t_interval([0.3])[:2] == (-math.inf, math.inf)
    assert t_interval([0.25, 0.25])[:2] == (0.25, 0.25)
    assert (p_value_above(0.15, 0.0, 2), p_value_above(0.0, 0.0, 2)) == (0, 1)
    with pytest.raises(ValueError, match="no values"):
        t_interval([])


def test_holm_worked_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).size == 0


def test_a_fit_is_exact_on_a_line_and_on_a_power_law() -> None:
    x = np.array([16.0, 32.0, 64.0, 128.0])
    fit = fit_line(x, 5 - 3 * x)
    assert (fit.slope.value, fit.intercept, *fit.slope.ends) == pytest.approx((-3, 5, -3, -3))
    law = fit_line(np.log(x), np.log(3 * x**2))
    assert (math.exp(law.intercept), law.slope.value, *law.slope.ends) == pytest.approx((3, 2, 2, 2))
    assert not fit_line(x[:2], x[:2]).slope.has_interval
    constant = fit_line(x, np.full(4, 7.0)).slope
    assert (constant.value, *constant.ends) == (0, 0, 0)


def test_the_interval_of_a_slope_agrees_with_scipy_and_covers() -> None:
    random = np.random.default_rng(2)
    x = np.log([8.0, 16.0, 32.0, 64.0, 128.0])
    held = 0
    for _ in range(500):
        y = 1.5 * x + random.normal(0.0, 0.1, x.size)
        slope = fit_line(x, y).slope
        held += slope.low <= 1.5 <= slope.high
    line = scipy.stats.linregress(x, y)
    assert slope.value == pytest.approx(line.slope)
    assert slope.high - slope.value == pytest.approx(scipy.stats.t.ppf(0.975, 3) * line.stderr)
    assert 0.92 <= held / 500 <= 0.98


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [([1.0, 2.0], [1.0], "as many x as y"), ([2.0, 2.0], [1.0, 3.0], "different x"), ([], [], "different x")],
)
def test_a_fit_refuses(x: list[float], y: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_line(x, y)
