"""A seeded model of a noisy machine: timing samples of pairs of processes, without a clock.

One block of samples is, in seconds,

    work * exp(effect of this side + jitter of this process + drift at this time + burst) * sample noise

- jitter: a process is faster or slower for its whole life (memory layout, core): one normal factor per
  process and per row.
- drift: a random walk in the logarithm of time, one step a block, shared by both processes.
- bursts: a neighbour takes the machine for a few blocks; shared by both processes.
- spikes: single samples far slower than the rest, the excess drawn from a Pareto distribution.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ctxbench.plugins.check.evidence import PairEvidence, PairRatios, pair_log_ratio
from ctxbench.plugins.check.pairs import BETWEEN, WITHIN, best_pair_s, best_row_s
from ctxbench.plugins.check.result import ExitCode, exit_code
from ctxbench.plugins.check.rows import RowKey, RowVerdict
from ctxbench.plugins.check.rules import GateRule, judge

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """The parameters of a machine; relative sizes are standard deviations of a logarithm.

    `jitter` per process and row, `sample` per sample, `drift` per block step. A burst starts at a block with
    the probability `burst_rate`, lasts `burst_blocks` on average (geometric) and multiplies time by
    `burst_factor`. A sample is a spike with the probability `spike_rate`; its excess is `spike_size` times
    a Pareto variable of tail index 1.5, which has no variance.
    """

    jitter: float
    sample: float
    drift: float
    burst_rate: float
    burst_blocks: float
    burst_factor: float
    spike_rate: float
    spike_size: float


QUIET = Noise(0.005, 0.005, 0.0005, 0.0, 4.0, 1.0, 0.005, 0.1)
LAPTOP = Noise(0.015, 0.02, 0.003, 0.01, 4.0, 1.2, 0.02, 0.2)
SHARED_CI = Noise(0.03, 0.03, 0.005, 0.03, 4.0, 1.4, 0.05, 0.3)
NOISE_LEVELS = {"quiet": QUIET, "laptop": LAPTOP, "shared CI": SHARED_CI}

ABBA = np.array([0, 1, 1, 0])


def block_samples(random: np.random.Generator, noise: Noise, log_time: FloatArray, samples: int) -> FloatArray:
    """Samples `[..., blocks, samples]` of blocks in time order whose own log time is `[..., blocks]`."""
    shape = log_time.shape
    drift = np.cumsum(random.normal(0.0, noise.drift, shape), axis=-1)
    slow = _bursts(random, noise, shape)
    time = np.exp(log_time + drift) * np.where(slow, noise.burst_factor, 1.0)
    values = random.normal(0.0, noise.sample, (*shape, samples))
    np.exp(values, out=values)
    spikes = np.nonzero(random.random(values.shape) < noise.spike_rate)
    values[spikes] *= 1 + noise.spike_size * random.pareto(1.5, spikes[0].size)
    return np.asarray(time[..., None] * values)


def _bursts(random: np.random.Generator, noise: Noise, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Mask of the blocks `[..., blocks]` in a burst."""
    starts = random.random(shape) < noise.burst_rate
    lengths = random.geometric(1 / noise.burst_blocks, shape)
    blocks = np.arange(shape[-1])
    ends = np.maximum.accumulate(np.where(starts, blocks + lengths, 0), axis=-1)
    return np.asarray(blocks < ends)


class SyntheticMachine:
    """A source of pairs: what one noisy machine would measure, row by row.

    Each row is measured in `groups` times A B B A blocks of `samples` samples. `changes` are the true relative changes.
    Pairs are drawn in batches.
    """

    BATCH = 8

    def __init__(
        self, seed: int, noise: Noise, changes: Mapping[str, float], groups: int = 3, samples: int = 5
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.noise = noise
        self.rows = [RowKey(row) for row in changes]
        self.effects = np.log1p(np.array(list(changes.values())))
        self.sides = np.tile(ABBA, groups)
        self.samples = samples
        self.pairs_measured = 0
        self.batch: list[dict[RowKey, PairRatios]] = []

    def measure_pair(self, rows: Sequence[RowKey]) -> dict[RowKey, PairRatios]:
        """The next pair's ratios of some rows."""
        if not self.batch:
            self.batch = self._draw()
        self.pairs_measured += 1
        pair = self.batch.pop()
        return {row: pair[row] for row in rows}

    def _draw(self) -> list[dict[RowKey, PairRatios]]:
        """A batch of pairs; time runs over pairs, rows and blocks."""
        pairs, rows, blocks = self.BATCH, len(self.rows), self.sides.size
        jitter = self.random.normal(0.0, self.noise.jitter, (pairs, rows, 2))
        jitter[:, :, 1] += self.effects
        log_time = jitter[:, :, self.sides]
        times = block_samples(self.random, self.noise, log_time.reshape(-1), self.samples)
        times = times.reshape(pairs, rows, blocks, self.samples)
        ratios = pair_log_ratio(times[..., self.sides == 0, :], times[..., self.sides == 1, :])
        return [
            {row: PairRatios(float(ratios[pair, index])) for index, row in enumerate(self.rows)}
            for pair in range(pairs)
        ]


@dataclass(frozen=True)
class Series:
    """Costs of pairs on a machine, in seconds: before the first, to launch one, to prepare a row."""

    before_s: float
    launch_s: float
    row_s: float


# Two cores, with nothing beside a gate, and with two busy loops.
NOTHING_BESIDE, BESIDE_TWO_LOOPS = Series(12.0, 2.5, 0.2), Series(25.0, 9.5, 0.35)
# The blocks of a row in the first pair: three times A B B A.
FEWEST_BLOCKS_S = 0.4
# Of a pair's log ratio by the wall's time, beside busy loops.
WALL_SPREAD = 0.5


def timed_gate(seed: int, series: Series, change: float, rows: int, budget_s: float) -> tuple[RowVerdict, ...]:
    """The verdicts of a gate whose first row has changed, under a clock that its pairs move on.

    A pair is as long as that of a real check, and a row's log ratio by the processor's time spreads as `best_row_s`
    says of so many seconds of blocks: normal values, measured beside busy loops, taken for a quiet machine, too.
    """
    random = np.random.default_rng(seed)
    left_s = budget_s - series.before_s
    most_s = best_pair_s(series.launch_s + rows * series.row_s, rows, left_s, GateRule())
    pair_s: list[float] = []

    def measure(keys: Sequence[RowKey]) -> dict[RowKey, PairRatios]:
        overhead_s = series.launch_s + len(keys) * series.row_s
        blocks_s = max(FEWEST_BLOCKS_S, best_row_s(overhead_s, len(keys), most_s) if pair_s else 0.0)
        pair_s.append(overhead_s + len(keys) * blocks_s)
        spreads = WALL_SPREAD, np.hypot(BETWEEN, WITHIN / np.sqrt(blocks_s))
        true = np.log1p([change if key.case == "0" else 0.0 for key in keys])
        noise = random.normal(0.0, spreads, (len(keys), 2)) + true[:, None]
        return {key: PairRatios(float(wall), float(cpu)) for key, (wall, cpu) in zip(keys, noise, strict=True)}

    def has_time() -> bool:
        return series.before_s + sum(pair_s) + sum(pair_s[-1:]) <= budget_s

    return judge([RowKey(str(row)) for row in range(rows)], PairEvidence(measure), GateRule(), has_time)


def gate_shares(
    series: Series, change: float, rows: int = 8, budget_s: float = 300.0, gates: int = 200
) -> dict[str, float]:
    """Shares of gates: the changed row `found`, exit code 0 (`green`), no row inconclusive (`decided`).

    And of unchanged rows: called regressed (`alarms`), `ok`.
    """
    counts: Counter[str] = Counter()
    for seed in range(gates):
        verdicts = timed_gate(seed, series, change, rows, budget_s)
        words = [row.verdict for row in verdicts]
        unchanged = words[bool(change) :]
        counts["found"] += words[0] == "regressed"
        counts["green"] += exit_code(verdicts) == ExitCode.OK
        counts["decided"] += "inconclusive" not in words
        counts["alarms"] += unchanged.count("regressed")
        counts["ok"] += unchanged.count("ok")
    of_gates = {name: counts[name] / gates for name in ("found", "green", "decided")}
    return of_gates | {name: counts[name] / (gates * len(unchanged)) for name in ("alarms", "ok")}
