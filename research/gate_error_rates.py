"""Computes the gate's error rates beside those of the rules in use, on the synthetic machines of the tests.

From the repository's root, a minute and a half on one core:

    PYTHONPATH=tests/plugins/check python research/gate_error_rates.py

writes results/gate-simulated.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from synthetic import (
    ABBA,
    BESIDE_TWO_LOOPS,
    NOISE_LEVELS,
    NOTHING_BESIDE,
    FloatArray,
    Noise,
    SyntheticMachine,
    block_samples,
    gate_shares,
)

from ctxbench.plugins.check.evidence import PairEvidence, pair_log_ratio
from ctxbench.plugins.check.rules import GateRule, judge

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "gate-simulated"

# Gates, and trials of each other rule, for each machine and change; pairs whose spread is taken.
GATES, PAIRS, TIMED_GATES = 2000, 20_000, 1000
CHANGES = (0.0, 0.02, 0.05, 0.10, 0.20)
ROWS = 4
# The other rules' one process a side, run one after the other: 20 blocks of 5 samples each.
BLOCKS, SAMPLES = 20, 5

# Samples of baseline and candidate, each [trials, samples], to "called a regression", [trials].
Rule = Callable[[FloatArray, FloatArray], NDArray[np.bool_]]


def mean_above(baseline: FloatArray, candidate: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(candidate.mean(axis=1) > 1.05 * baseline.mean(axis=1))


def minimum_above(baseline: FloatArray, candidate: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(candidate.min(axis=1) > 1.05 * baseline.min(axis=1))


def mann_whitney(baseline: FloatArray, candidate: FloatArray) -> NDArray[np.bool_]:
    p_values = stats.mannwhitneyu(candidate, baseline, axis=1, method="asymptotic").pvalue
    return np.asarray((p_values < 0.05) & (np.median(candidate, axis=1) > np.median(baseline, axis=1)))


def welch(baseline: FloatArray, candidate: FloatArray) -> NDArray[np.bool_]:
    p_values = stats.ttest_ind(candidate, baseline, axis=1, equal_var=False).pvalue
    return np.asarray((p_values < 0.05) & (candidate.mean(axis=1) > baseline.mean(axis=1)))


OTHER_RULES: dict[str, Rule] = {
    "mean > 5 %": mean_above,
    "min > 5 %": minimum_above,
    "Mann-Whitney": mann_whitney,
    "Welch": welch,
}


def other_rates(noise: Noise, change: float) -> list[float]:
    """Regression rates of the other rules."""
    random = np.random.default_rng(0)
    log_time = random.normal(0.0, noise.jitter, (GATES, 2))
    log_time[:, 1] += np.log1p(change)
    samples = block_samples(random, noise, np.repeat(log_time, BLOCKS, axis=1), SAMPLES).reshape(GATES, 2, -1)
    return [float(rule(samples[:, 0], samples[:, 1]).mean()) for rule in OTHER_RULES.values()]


@dataclass(frozen=True)
class GateRates:
    """Shares of a row's verdicts, and the mean count of pairs that the row took."""

    regressed: float
    ok: float
    inconclusive: float
    pairs: float


def gate_rates(noise: Noise, change: float, rule: GateRule) -> GateRates:
    """Our rates, over gates of one changed row and three identical ones; all four count without a change."""
    verdicts: Counter[str | None] = Counter()
    pairs = 0
    for seed in range(GATES):
        machine = SyntheticMachine(seed, noise, {"changed": change} | {str(row): 0.0 for row in range(1, ROWS)})
        rows = judge(machine.rows, PairEvidence(machine.measure_pair), rule, lambda: True)
        counted = rows[: 1 if change else ROWS]
        verdicts.update(row.verdict for row in counted)
        pairs += sum(row.replicates for row in counted)
    total = verdicts.total()
    return GateRates(
        verdicts["regressed"] / total, verdicts["ok"] / total, verdicts["inconclusive"] / total, pairs / total
    )


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def machines() -> Iterator[dict[str, object]]:
    """The noise of each synthetic machine."""
    for name, noise in NOISE_LEVELS.items():
        yield {"machine": name, **{key.replace("_", " "): value for key, value in asdict(noise).items()}}


def rates() -> Iterator[dict[str, object]]:
    """Of GATES gates, and of as many trials of each other rule: what they say of one changed row."""
    for name, noise in NOISE_LEVELS.items():
        for change in CHANGES:
            ours = gate_rates(noise, change, GateRule())
            yield {
                "machine": name,
                "true change": f"{change:+.0%}",
                "regressed": percent(ours.regressed, 2),
                "ok": percent(ours.ok),
                "inconclusive": percent(ours.inconclusive),
                "pairs": f"{ours.pairs:.1f}",
                **dict(zip(OTHER_RULES, map(percent, other_rates(noise, change)), strict=True)),
            }


def looks() -> Iterator[dict[str, object]]:
    """Of GATES gates: fewer looks, or those that are used."""
    for name, noise in NOISE_LEVELS.items():
        for planned in ((9, 28), GateRule().looks):
            same, slower = (gate_rates(noise, change, GateRule(looks=planned)) for change in (0.0, 0.10))
            yield {
                "machine": name,
                "looks": ", ".join(map(str, planned)),
                "unchanged: ok": percent(same.ok),
                "unchanged: pairs": f"{same.pairs:.1f}",
                "+10 %: regressed": percent(slower.regressed),
                "+10 %: pairs": f"{slower.pairs:.1f}",
            }


def budget() -> Iterator[dict[str, object]]:
    """Of TIMED_GATES gates within a budget: eight rows in five minutes, the 22 rows of `ci` in ten."""
    for name, series in (("nothing", NOTHING_BESIDE), ("two busy loops", BESIDE_TWO_LOOPS)):
        for count, budget_s in ((8, 300.0), (22, 600.0)):
            for change in (0.0, 0.05, 0.1, 0.2):
                seen = gate_shares(series, change, count, budget_s, TIMED_GATES)
                yield {
                    "beside the gate": name,
                    "rows": str(count),
                    "one row's change": f"{change:+.0%}",
                    "found": percent(seen["found"]) if change else "-",
                    "exit code 0": percent(seen["green"]),
                    "no row inconclusive": percent(seen["decided"]),
                    "false alarms a row": percent(seen["alarms"], 2),
                }


def pair_value() -> Iterator[dict[str, object]]:
    """Spread of a pair's log ratio over PAIRS pairs of 12 blocks."""
    sides = np.tile(ABBA, 3)
    for name, noise in NOISE_LEVELS.items():
        random = np.random.default_rng(1)
        log_time = random.normal(0.0, noise.jitter, (PAIRS, 2))[:, sides]
        blocks = block_samples(random, noise, log_time, SAMPLES)
        blocks_a, blocks_b = blocks[:, sides == 0], blocks[:, sides == 1]
        mean = np.mean(np.log(np.median(blocks_b, axis=2)) - np.log(np.median(blocks_a, axis=2)), axis=1)
        yield {
            "machine": name,
            "jitter alone": percent(noise.jitter * 2**0.5, 2),
            "mean of differences": percent(float(np.std(mean)), 2),
            "median of differences (ours)": percent(float(np.std(pair_log_ratio(blocks_a, blocks_b))), 2),
        }


def main() -> None:
    for each in (budget, machines, rates, looks, pair_value):
        pd.DataFrame(each()).to_csv(RESULTS / f"{each.__name__}.csv", index=False)


if __name__ == "__main__":
    main()
