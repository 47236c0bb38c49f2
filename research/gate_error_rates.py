"""Computes the gate's error rates beside those of the rules in use, on the synthetic machines of the tests.

From the repository's root, a minute and a half on one core:

    PYTHONPATH=tests/plugins/check python research/gate_error_rates.py

rewrites the part of docs/gate-error-rates.md between the two markers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
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
from ctxbench.table.markdown import render_markdown
from ctxbench.table.table import plain_table

PAGE = Path(__file__).parents[1] / "docs" / "gate-error-rates.md"
BEGIN, END = "<!-- simulated: begin -->", "<!-- simulated: end -->"

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


def table(label: str, headings: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with a column of labels and columns of numbers."""
    text: str = render_markdown(plain_table({label: "label", **dict.fromkeys(headings, "measured")}, rows))
    return text


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def noise_section() -> Iterator[str]:
    yield "### The machines\n"
    headings = (name.replace("_", " ") for name in asdict(NOISE_LEVELS["quiet"]))
    rows = [[name, *(f"{value:g}" for value in asdict(noise).values())] for name, noise in NOISE_LEVELS.items()]
    yield table("machine", headings, rows)


def rates_section() -> Iterator[str]:
    rule = GateRule()
    yield f"### Error rates, {GATES:,} gates and {GATES:,} trials of each other rule\n"
    headings = ["regressed", "ok", "inconclusive", "pairs", *OTHER_RULES]
    for name, noise in NOISE_LEVELS.items():
        rows = []
        for change in CHANGES:
            ours = gate_rates(noise, change, rule)
            shares = map(percent, other_rates(noise, change))
            own = (percent(ours.regressed, 2), percent(ours.ok), percent(ours.inconclusive), f"{ours.pairs:.1f}")
            rows.append([f"{change:+.0%}", *own, *shares])
        yield f"**{name}**\n"
        yield table("true change", headings, rows)


def looks_section() -> Iterator[str]:
    yield f"### Fewer looks, or those that are used ({GATES:,} gates)\n"
    rows = []
    for name, noise in NOISE_LEVELS.items():
        for looks in ((9, 28), GateRule().looks):
            same, slower = (gate_rates(noise, change, GateRule(looks=looks)) for change in (0.0, 0.10))
            label = ", ".join(map(str, looks))
            rows.append(
                [name, label, percent(same.ok), f"{same.pairs:.1f}", percent(slower.regressed), f"{slower.pairs:.1f}"]
            )
    headings = ["looks", "unchanged: ok", "unchanged: pairs", "+10 %: regressed", "+10 %: pairs"]
    yield table("machine", headings, rows)


def budget_section() -> Iterator[str]:
    yield f"### Eight rows in five minutes, the 22 rows of `ci` in ten ({TIMED_GATES} gates each)\n"
    rows = []
    for name, series in (("nothing", NOTHING_BESIDE), ("two busy loops", BESIDE_TWO_LOOPS)):
        for count, budget_s in ((8, 300.0), (22, 600.0)):
            for change in (0.0, 0.05, 0.1, 0.2):
                seen = gate_shares(series, change, count, budget_s, TIMED_GATES)
                found = percent(seen["found"]) if change else "-"
                shares = [percent(seen["green"]), percent(seen["decided"]), percent(seen["alarms"], 2)]
                rows.append([name, str(count), f"{change:+.0%}", found, *shares])
    headings = ["rows", "one row's change", "found", "exit code 0", "no row inconclusive", "false alarms a row"]
    yield table("beside the gate", headings, rows)


def pair_value_section() -> Iterator[str]:
    yield f"### Spread of a pair's log ratio, {PAIRS:,} pairs of 12 blocks\n"
    sides = np.tile(ABBA, 3)
    rows = []
    for name, noise in NOISE_LEVELS.items():
        random = np.random.default_rng(1)
        log_time = random.normal(0.0, noise.jitter, (PAIRS, 2))[:, sides]
        blocks = block_samples(random, noise, log_time, SAMPLES)
        blocks_a, blocks_b = blocks[:, sides == 0], blocks[:, sides == 1]
        mean = np.mean(np.log(np.median(blocks_b, axis=2)) - np.log(np.median(blocks_a, axis=2)), axis=1)
        spreads = (noise.jitter * 2**0.5, np.std(mean), np.std(pair_log_ratio(blocks_a, blocks_b)))
        rows.append([name, *(percent(float(spread), 2) for spread in spreads)])
    yield table("machine", ["jitter alone", "mean of differences", "median of differences (ours)"], rows)


def main() -> None:
    sections = (budget_section(), noise_section(), rates_section(), looks_section(), pair_value_section())
    text = "\n".join(line for section in sections for line in section)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
