"""The crossover of two costs: exact ones by hand, times against Fieller's limits, synthetic streams, costs in bands."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from ctxbench.base.number import Number
from ctxbench.plugins.crossover.crossover import CostsAtSize, Crossover, crossover, ratio_between

GRID = (64, 256, 1024, 4096, 16384)
Law = Callable[[int], float]


def counted(first: Law, second: Law, grid: Sequence[int] = GRID) -> Crossover:
    return crossover([CostsAtSize(n, Number(first(n)), Number(second(n))) for n in grid], exact=True)


def timed(ms: Sequence[float], number: int = 1) -> Number:
    """A time of processes by round, the first of which has this number."""
    median = float(np.median(ms))
    wide = len(ms) < 3
    low, high = (0.0, math.inf) if wide else (min(ms), max(ms))
    processes = {number + place: float(each) for place, each in enumerate(ms)}
    return Number(median, low, high, processes=processes)


def of_ratios(ratios: Sequence[Sequence[float]], grid: Sequence[int] = GRID) -> list[CostsAtSize]:
    """Times whose ratio in each round is given, a line a size."""
    return [CostsAtSize(n, timed(line), timed([1.0] * len(line))) for n, line in zip(grid, ratios, strict=True)]


def test_power_laws_cross_where_they_do_by_hand() -> None:
    # 512 n = n^2 at n = 512; 8 n^1.5 = n^2 at n = 64; 10^3 n^0.5 = n at n = 10^6.
    found = counted(lambda n: 512.0 * n, lambda n: float(n) ** 2)
    assert found.n.value == pytest.approx(512, rel=1e-12)
    assert (found.n.low, found.n.high) == (256, 1024)
    assert found.signs == (1, 1, -1, -1, -1)
    assert counted(lambda n: 1e3 * n**0.5, float, (10**5, 10**7)).n.value == pytest.approx(10**6, rel=1e-12)
    at_a_size = counted(lambda n: 8.0 * n**1.5, lambda n: float(n) ** 2)
    assert (at_a_size.n.value, at_a_size.n.low, at_a_size.n.high) == (64, 64, 256)


def test_a_sum_of_power_laws_crosses_between_the_two_sizes_around_it() -> None:
    root = 277 + math.sqrt(277**2 + 1e5)  # of n^2 + 6000 n = 6554 n + 10^5: 697.4
    found = counted(lambda n: 6554.0 * n + 1e5, lambda n: n**2 + 6000.0 * n, (64, 256, 576, 1024, 2304))
    assert (found.n.low, found.n.high) == (576, 1024)
    assert found.n.value == pytest.approx(root, rel=0.03)


def test_beyond_the_sizes_nothing_is_extrapolated() -> None:
    below = counted(lambda n: 63.0 * n, lambda n: float(n) ** 2)
    assert (below.n.value, below.n.low, below.n.high) == (0, 0, 0)
    above = counted(lambda n: 16385.0 * n, lambda n: float(n) ** 2)
    assert (above.n.value, above.n.low, above.n.high) == (math.inf, math.inf, math.inf)
    reversed_ = counted(lambda n: float(n) ** 2, lambda n: 512.0 * n)
    assert reversed_.n.value == math.inf
    assert not reversed_.is_single


def test_of_several_crossings_the_last_counts() -> None:
    ratios = {64: 2.0, 256: 0.5, 1024: 2.0, 4096: 0.5, 16384: 0.25}
    found = counted(lambda n: ratios[n], lambda n: 1.0)
    assert found.n.value == pytest.approx(2048, rel=1e-12)  # halfway on log axes
    assert (found.n.low, found.n.high, found.is_single) == (1024, 4096, False)
    assert found.signs == (1, -1, 1, -1, -1)


def test_equal_costs_have_no_crossover() -> None:
    found = counted(float, float)
    assert math.isnan(found.n.value)
    assert math.isnan(found.n.low)
    assert (set(found.signs), found.is_single) == ({0}, True)
    until = counted(float, lambda n: max(n, 1024) * n / 1024)  # equal up to 1024
    assert (until.n.value, until.n.low, until.n.high) == (1024, 1024, 4096)


def test_times_without_noise_cross_at_a_point() -> None:
    found = crossover([CostsAtSize(n, timed([512.0 * n] * 3), timed([float(n) ** 2] * 3)) for n in GRID], exact=False)
    assert [found.n.value, found.n.low, found.n.high] == pytest.approx([512, 512, 512], rel=1e-9)


def fieller(lower: NDArray[np.float64], upper: NDArray[np.float64]) -> list[float]:
    """The shares of the way between two sizes at which Student's interval of the mean log ratio ends at 0."""
    count = len(lower)
    reach = stdtrit(count - 1, 0.975) ** 2 / count
    covariance = np.cov(lower, upper)
    start, step = lower.mean(), upper.mean() - lower.mean()
    # The variance at a share s of the way is a + 2 b s + c s^2.
    a, b = covariance[0, 0], covariance[0, 1] - covariance[0, 0]
    c = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    roots = np.roots([step**2 - reach * c, 2 * (start * step - reach * b), start**2 - reach * a])
    return sorted(float(root) for root in roots)


def test_the_limits_of_times_are_those_of_fieller() -> None:
    random = np.random.default_rng(3)
    logs = np.array([2.0, 0.5, -1.0, -2.0, -3.0])[:, None] + random.normal(0, 0.1, (5, 6))
    found = crossover(of_ratios(np.exp(logs).tolist()), exact=False)
    low, high = fieller(logs[1], logs[2])
    assert found.n.low == pytest.approx(256 * 4**low, rel=1e-9)
    assert found.n.high == pytest.approx(256 * 4**high, rel=1e-9)
    middle = logs[1].mean() / (logs[1].mean() - logs[2].mean())
    assert found.n.value == pytest.approx(256 * 4**middle, rel=1e-9)
    assert found.n.low < found.n.value < found.n.high


def test_one_limit_can_be_outside_the_sizes() -> None:
    noisy = [0.7, 1.0, 1.3]  # not told apart from 1
    above = crossover(of_ratios([[2.0] * 3, [2.0] * 3, [2.0] * 3, [1.5] * 3, noisy]), exact=False)
    assert above.n.low > 4096
    assert above.n.high == math.inf
    below = crossover(of_ratios([noisy, [0.5] * 3, [0.4] * 3, [0.3] * 3, [0.2] * 3]), exact=False)
    assert (below.n.value, below.n.low) == (0, 0)
    assert 64 < below.n.high < 256
    assert below.signs == (0, -1, -1, -1, -1)


def test_times_that_are_nowhere_told_apart_have_no_crossover() -> None:
    found = crossover(of_ratios([[0.7, 1.0, 1.3]] * 5), exact=False)
    assert math.isnan(found.n.value)
    assert (found.n.low, found.n.high) == (0, math.inf)


@pytest.mark.parametrize("rounds", [1, 2])
def test_with_too_few_processes_there_is_no_interval(rounds: int) -> None:
    found = crossover(
        [CostsAtSize(n, timed([512.0 * n] * rounds), timed([float(n) ** 2] * rounds)) for n in GRID], exact=False
    )
    assert found.n.value == pytest.approx(512)
    assert math.isnan(found.n.low)
    assert math.isnan(found.n.high)
    assert found.signs == (1, 1, -1, -1, -1)


def test_rounds_count_that_both_times_of_both_sizes_have() -> None:
    laws = [(512.0 * n, float(n) ** 2) for n in GRID]
    shifted = [CostsAtSize(n, timed([a] * 5), timed([b] * 5, number=3)) for n, (a, b) in zip(GRID, laws, strict=True)]
    assert not math.isnan(crossover(shifted, exact=False).n.low)  # rounds 3 to 5
    apart = [CostsAtSize(n, timed([a] * 5), timed([b] * 5, number=4)) for n, (a, b) in zip(GRID, laws, strict=True)]
    assert math.isnan(crossover(apart, exact=False).n.low)
    one_apart = [*shifted[:-1], apart[-1]]
    assert math.isnan(crossover(one_apart, exact=False).n.low)


def test_neighbouring_steps_may_have_other_rounds() -> None:
    # Rounds 1 to 3 put the ratio at 256 above 1, rounds 4 to 6 below.
    sizes = [
        CostsAtSize(64, timed([2.0] * 3), timed([1.0] * 3)),
        CostsAtSize(256, timed([1.1, 1.1, 1.1, 0.9, 0.9, 0.9]), timed([1.0] * 6)),
        CostsAtSize(1024, timed([0.5] * 3, number=4), timed([1.0] * 3, number=4)),
    ]
    found = crossover(sizes, exact=False)
    assert [found.n.low, found.n.value, found.n.high] == pytest.approx([256, 256, 256])


def test_a_ratio_between_sizes_is_on_the_power_laws() -> None:
    lower, upper = CostsAtSize(16, Number(8.0), Number(2.0)), CostsAtSize(256, Number(8.0), Number(32.0))
    assert [ratio_between(lower, upper, share).value for share in (0.0, 0.5, 1.0)] == pytest.approx([4, 1, 0.25])
    assert math.isnan(ratio_between(lower, upper, 0.5).low)


def coverage(slope: float, noise: float, rounds: int, runs: int = 500) -> float:
    """The share of runs whose interval holds the crossover of first = 1 and second = (n / truth)^slope.

    Each process has normal noise of its own; a random walk of the same size over the rounds is shared by all.
    """
    grid = np.array([64, 144, 256, 576, 1024, 2304, 4096, 9216])
    truth = math.sqrt(576 * 1024)
    random = np.random.default_rng(5)
    means = np.stack([np.zeros(len(grid)), slope * np.log(grid / truth)])[:, :, None]
    hits = 0
    for _ in range(runs):
        shared = np.cumsum(random.normal(0, noise, rounds))
        times = np.exp(means + random.normal(0, noise, (2, len(grid), rounds)) + shared)
        sizes = [CostsAtSize(int(n), *map(timed, times[:, place])) for place, n in enumerate(grid)]
        found = crossover(sizes, exact=False)
        hits += found.n.low <= truth <= found.n.high
    return hits / runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slope", "noise", "rounds", "least", "most"),
    [
        (1.0, 0.03, 3, 0.93, 0.97),
        (1.0, 0.1, 5, 0.93, 0.97),
        (0.1, 0.03, 10, 0.93, 0.97),
        (0.1, 0.1, 5, 0.95, 0.995),  # most sizes are not told apart
    ],
)
def test_the_interval_covers_the_true_crossover(
    slope: float, noise: float, rounds: int, least: float, most: float
) -> None:
    assert least <= coverage(slope, noise, rounds) <= most


def banded(first: Law, second: Law, factor: float) -> list[CostsAtSize]:
    """Costs at GRID that may be larger or smaller by this factor."""

    def value(cost: float) -> Number:
        return Number(cost, cost / factor, cost * factor, origin="predicted")

    return [CostsAtSize(n, value(first(n)), value(second(n))) for n in GRID]


def test_costs_in_bands_cross_between_those_of_their_opposite_ends() -> None:
    # 256 n = 2 n^2 at n = 128, and 1024 n = n^2 / 2 at n = 2048.
    found = crossover(banded(lambda n: 512.0 * n, lambda n: float(n) ** 2, 2), exact=False)
    assert [found.n.low, found.n.value, found.n.high] == pytest.approx([128, 512, 2048], rel=1e-12)
    assert found.signs == (1, 0, 0, -1, -1)
    wider = crossover(banded(lambda n: 512.0 * n, lambda n: float(n) ** 2, 5), exact=False)
    assert [wider.n.low, wider.n.high] == pytest.approx([0, 12800])
    above = crossover(banded(lambda n: 6e4 * n, lambda n: float(n) ** 2, 2), exact=False)
    assert [above.n.low, above.n.value, above.n.high] == pytest.approx([15000, math.inf, math.inf])


def test_bands_that_overlap_at_every_size_decide_nothing() -> None:
    found = crossover(banded(lambda n: 512.0 * n, lambda n: float(n) ** 2, 6), exact=False)
    assert math.isnan(found.n.value)
    assert (found.n.low, found.n.high, found.signs) == (0, math.inf, (0,) * 5)


def test_wherever_in_their_bands_costs_are_they_cross_inside() -> None:
    random = np.random.default_rng(11)
    for _ in range(200):
        values = np.exp(random.normal(0, 1.5, (len(GRID), 2)))
        factors = np.exp(random.uniform(0, 1, (len(GRID), 2)))
        bands = [
            [Number(v, v / f, v * f, origin="predicted") for v, f in zip(*line, strict=True)]
            for line in zip(values, factors, strict=True)
        ]
        found = crossover([CostsAtSize(n, *both) for n, both in zip(GRID, bands, strict=True)], exact=False)
        at = np.exp(random.uniform(-1, 1, values.shape) * np.log(factors)) * values
        inside = crossover([CostsAtSize(n, *map(Number, line)) for n, line in zip(GRID, at, strict=True)], exact=True)
        assert found.n.low <= inside.n.value <= found.n.high
