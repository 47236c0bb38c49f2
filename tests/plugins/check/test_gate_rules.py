"""The gate's rule on scripted evidence, and its error rates on synthetic machines."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import (
    BESIDE_TWO_LOOPS,
    LAPTOP,
    NOISE_LEVELS,
    NOTHING_BESIDE,
    SHARED_CI,
    Noise,
    Series,
    SyntheticMachine,
    block_samples,
    gate_shares,
)

from ctxbench.plugins.check.evidence import (
    BudgetSpent,
    PairEvidence,
    PairFailure,
    PairRatios,
    PairResult,
    Side,
    pair_log_ratio,
)
from ctxbench.plugins.check.result import ExitCode, exit_code
from ctxbench.plugins.check.rows import NO_ROOM, OUT_OF_TIME, Estimate, RowKey, RowVerdict
from ctxbench.plugins.check.rules import ABOVE, BELOW, CONTAINED, CORRECTED, ENDED, NO_TIME, WITHIN, GateRule, judge

RULE = GateRule(looks=(4, 8))


def always() -> bool:
    return True


def pairs_left(count: int) -> Callable[[], bool]:
    """A budget of so many pairs."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


def around(change: float, wobble: float = 0.001) -> Iterator[PairResult]:
    """Pairs whose log ratios lie around a true change."""
    return (PairRatios(math.log1p(change) + each) for each in itertools.cycle([-wobble, wobble]))


def ratios(*logs: float) -> list[PairResult]:
    return [PairRatios(each) for each in logs]


def then(count: int, first: Iterable[PairResult], rest: Iterable[PairResult]) -> Iterable[PairResult]:
    return itertools.chain(itertools.islice(first, count), rest)


class Script:
    """A pair source that plays a list of results for each row and notes which rows it was asked for."""

    def __init__(self, results: Mapping[str, Iterable[PairResult]]) -> None:
        self.results = {RowKey(row): iter(series) for row, series in results.items()}
        self.asked: list[str] = []

    def measure_pair(self, rows: Sequence[RowKey]) -> dict[RowKey, PairResult]:
        self.asked.append("".join(row.case for row in rows))
        return {row: next(self.results[row]) for row in rows}


def gate(
    script: Script, has_time: Callable[[], bool] = always, rule: GateRule = RULE, end_at_regression: bool = False
) -> tuple[RowVerdict, ...]:
    return judge(list(script.results), PairEvidence(script.measure_pair), rule, has_time, end_at_regression)


def strict(rows: Sequence[RowVerdict]) -> ExitCode:
    return exit_code(rows, inconclusive_is="fail")


def test_a_pair_that_was_given_up_leaves_the_rows_without_time() -> None:
    left = iter([{RowKey("a"): PairRatios(0.0)}])

    def pair(rows: Sequence[RowKey]) -> Mapping[RowKey, PairResult]:
        for found in left:
            return found
        raise BudgetSpent

    (row,) = judge([RowKey("a")], PairEvidence(pair), RULE, always)
    assert (row.verdict, row.replicates, row.reason) == ("inconclusive", 1, NO_TIME)


# Pairs, by the sign of what they say: 0.1 and more apart, they decide nothing.
OPEN = [-0.04, 0.06, 0.0, 0.02]
WILD = [0.015 + 0.2 * sign for sign in (-1, 1, -1, 1)]
# Alone p is 0.0081 at the first look, where 0.0083 is allowed; among three rows it must be below a third of that.
WEAK = [math.log1p(0.015) + each for each in (0.01, 0.02, 0.03, 0.02)]
CRASH, ABSENT = PairFailure("candidate", "out of memory"), PairFailure("baseline", "not in the baseline")
BOTH = PairFailure("both", "out of memory on both sides")
FIRST = "The first 4 of these pairs left it open: "

# What pairs say of each row, how many there is time for; what each row comes to; the exit codes, plain and strict.
OUTCOMES: dict[str, tuple[dict[str, Iterable[PairResult]], int, list[tuple[str | None, int, str]], tuple[int, int]]] = {
    "unchanged": ({"a": around(0.0)}, 99, [("ok", 4, BELOW)], (0, 0)),
    "faster": ({"a": around(-0.3)}, 99, [("ok", 4, BELOW)], (0, 0)),
    "slower than the tolerance, certainly within the margin": (
        {"a": around(0.03)}, 99, [("ok", 4, WITHIN)], (0, 0)),
    "slower": ({"a": around(0.0), "b": around(0.2)}, 99, [("ok", 4, BELOW), ("regressed", 4, ABOVE)], (1, 1)),
    "at the margin": ({"a": around(0.05)}, 99, [("regressed", 4, ABOVE)], (1, 1)),
    "open after all looks": ({"a": ratios(*WILD * 2)}, 99, [("inconclusive", 8, CONTAINED)], (0, 3)),
    "decided by later pairs": ({"a": then(4, ratios(*OPEN), around(0.0))}, 99, [("ok", 8, BELOW)], (0, 0)),
    "weak, alone": ({"a": ratios(*WEAK)}, 99, [("regressed", 4, ABOVE)], (1, 1)),
    "weak, among others that are open": (
        {"a": ratios(*WEAK), "b": ratios(*WILD), "c": ratios(*WILD)}, 4,
        [("inconclusive", 4, f"{NO_TIME} {CORRECTED}"), *[("inconclusive", 4, f"{NO_TIME} {CONTAINED}")] * 2], (0, 3)),
    "no time at all": ({"a": around(0.0)}, 0, [("inconclusive", 0, NO_TIME)], (5, 5)),
    "time for one pair": ({"a": around(0.0)}, 1, [("inconclusive", 1, NO_TIME)], (0, 3)),
    "no time for a look": ({"a": around(0.0)}, 3, [("inconclusive", 3, NO_TIME)], (0, 3)),
    "no time for the second look": (
        {"a": ratios(*OPEN, 0.0, 0.0, 0.0)}, 7, [("inconclusive", 7, f"{NO_TIME} {FIRST}{CONTAINED}")], (0, 3)),
    "fails": ({"a": around(0.0), "b": [CRASH]}, 99, [("ok", 4, BELOW), ("broken", 0, CRASH.message)], (4, 4)),
    "fails later": ({"a": then(2, around(0.0), [CRASH])}, 99, [("broken", 2, CRASH.message)], (4, 4)),
    "no baseline": ({"a": [ABSENT]}, 99, [("not compared", 0, ABSENT.message)], (5, 5)),
    "fails on both sides": (
        {"a": [BOTH], "b": around(0.0)}, 99, [("not compared", 0, BOTH.message), ("ok", 4, BELOW)], (0, 0)),
    "a baseline that fails later": (
        {"a": then(2, around(0.0), [ABSENT])}, 99,
        [("inconclusive", 2, f"The baseline was measured before and failed now: {ABSENT.message}")], (0, 3)),
    "no rows": ({}, 99, [], (5, 5)),
}  # fmt: skip


@pytest.mark.parametrize(("series", "time", "expected", "codes"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_rows_come_to(
    series: dict[str, Iterable[PairResult]],
    time: int,
    expected: list[tuple[str | None, int, str]],
    codes: tuple[int, int],
) -> None:
    kept = {row: list(itertools.islice(results, 30)) for row, results in series.items()}
    rows = gate(Script(kept), pairs_left(time))
    assert [(row.verdict or row.status, row.replicates, row.reason) for row in rows] == expected
    assert (exit_code(rows), strict(rows)) == codes
    # An interval is told where it decided, and where it is why nothing is decided: if it contains both lines.
    for row in rows:
        contained = row.change.low <= 0.015 and row.change.high >= 0.05
        told = row.verdict in ("ok", "regressed") or (row.verdict == "inconclusive" and row.reason.endswith(CONTAINED))
        assert row.change.has_interval == told
        assert row.verdict != "inconclusive" or not told or contained


def test_the_numbers_of_a_verdict_are_relative_and_those_of_all_pairs() -> None:
    (row,) = gate(Script({"a": around(0.2)}))
    assert row.change.value == pytest.approx(0.2, abs=0.002)
    assert 0.19 < row.change.low < 0.2 < row.change.high < 0.21
    assert (math.isnan(row.control), row.clock) == (True, "wall")
    assert row.wall == pytest.approx(0.2, abs=0.002)


def test_the_interval_told_is_that_of_the_look_that_left_it_open() -> None:
    (row,) = gate(Script({"a": then(4, ratios(*OPEN), around(0.0))}), pairs_left(7))
    at_look = Estimate(0.01, float(np.std(OPEN, ddof=1)) / 2, 3, 4).interval(RULE.look_alpha(4))
    assert (row.change.value, *row.change.ends) == pytest.approx([math.expm1(x) for x in (0.01, *at_look.ends)])


def test_a_decided_row_is_not_measured_again() -> None:
    script = Script({"a": around(0.0), "b": ratios(*OPEN * 2), "c": [CRASH]})
    gate(script)
    assert script.asked == ["abc", *["ab"] * 3, *["b"] * 4]


def test_an_interval_with_ends_ten_times_apart_is_not_told() -> None:
    (row,) = gate(Script({"a": ratios(-3.0, 3.0, 1.0, 0.0)}), pairs_left(4))
    assert (row.reason, row.change.has_interval) == (f"{NO_TIME} {CONTAINED}", False)
    assert math.isfinite(row.change.value)


@pytest.mark.slow
@given(st.lists(st.floats(-0.3, 0.3), min_size=28, max_size=28), st.integers(1, 28))
@settings(max_examples=200, deadline=None)
def test_no_inconclusive_row_has_an_interval_on_one_side_of_a_line(logs: list[float], budget: int) -> None:
    (row,) = gate(Script({"a": ratios(*logs)}), pairs_left(budget), GateRule())
    undecided = row.verdict == "inconclusive" and row.change.has_interval
    assert not undecided or (row.change.low <= 0.015 and row.change.high >= 0.05)


@pytest.mark.parametrize("cpu", [0.0, 0.2])
def test_the_processor_s_time_decides_where_each_pair_has_it(cpu: float) -> None:
    pairs: list[PairResult] = [PairRatios(each, math.log1p(cpu) + each / 1e3) for each in (-0.5, 0.5, 0.3, -0.3)]
    (row,) = gate(Script({"a": pairs}))
    assert (row.verdict, row.clock) == ("regressed" if cpu else "ok", "cpu")
    assert (row.change.value, row.wall) == pytest.approx((cpu, 0.0))
    # In one pair the passes waited: the wall's time decides, and cannot.
    (row,) = gate(Script({"a": [PairRatios(0.3), *pairs[:3]]}), pairs_left(4))
    assert (row.verdict, row.clock) == ("inconclusive", "wall")


def test_the_margin_can_be_the_row_s_own() -> None:
    rule = GateRule(looks=(4, 8), margins={RowKey("b"): 0.3, RowKey("c"): 0.005})
    rows = gate(Script({"a": around(0.2), "b": around(0.2), "c": around(0.01)}), rule=rule)
    # A margin below the tolerance is its own tolerance.
    assert [row.verdict for row in rows] == ["regressed", "ok", "regressed"]


def test_a_gate_may_end_with_the_first_certain_regression() -> None:
    script = Script({"s": around(0.2), "e": around(0.0), "o": ratios(*WILD * 2)})
    found = gate(script, end_at_regression=True)
    assert [row.verdict for row in found] == ["regressed", "ok", "inconclusive"]
    assert found[2].reason == f"{ENDED} {CONTAINED}"
    assert exit_code(found) == ExitCode.REGRESSED
    assert script.asked == ["seo"] * 4
    # Without one, no row ends early.
    found = gate(Script({"e": around(0.0), "o": ratios(*WILD * 2)}), end_at_regression=True)
    assert [row.replicates for row in found] == [4, 8]
    assert ENDED not in found[1].reason


GPU_FULL = "oom: out of memory: CUDA out of memory. Tried to allocate 2.00 GiB."
GPU_BUSY = "error: AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
STOPPED = "timeout: still in the measurement after 60 s"


@pytest.mark.parametrize(
    ("message", "excuse", "told"),
    [
        (GPU_FULL, NO_ROOM, "The GPU had memory for one of the two sides only:"),
        (GPU_BUSY, NO_ROOM, "The GPU had memory for one of the two sides only:"),
        (STOPPED, OUT_OF_TIME, "It was stopped at a time limit, which other work on the machine can cause:"),
    ],
)
@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize("pairs", [0, 2])
def test_a_failure_of_one_side_that_others_may_cause_is_inconclusive(
    message: str, excuse: str, told: str, side: Side, pairs: int
) -> None:
    failure = PairFailure(side, message, excuse=excuse)
    rows = gate(Script({"a": then(pairs, around(0.0), [failure]), "b": around(0.0)}))
    assert (rows[0].status, rows[0].verdict, rows[0].replicates) == ("measured", "inconclusive", pairs)
    assert rows[0].reason == f"{told} {message}"
    assert (rows[1].verdict, strict(rows), exit_code(rows)) == ("ok", ExitCode.INCONCLUSIVE, ExitCode.OK)
    both = gate(Script({"a": [PairFailure("both", message, excuse=excuse)]}))
    assert (both[0].status, exit_code(both)) == ("not compared", ExitCode.NOTHING_COMPARED)


def test_a_pair_source_must_answer_for_every_row_with_finite_numbers() -> None:
    with pytest.raises(ValueError, match="returned nothing for the row 'a'"):
        judge([RowKey("a")], PairEvidence(lambda rows: {}), RULE, always)
    with pytest.raises(ValueError, match="same row twice"):
        judge([RowKey("a")] * 2, PairEvidence(lambda rows: {}), RULE, always)
    for wrong in ((math.nan,), (0.0, math.inf)):
        with pytest.raises(ValueError, match="finite"):
            PairRatios(*wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": 0.0},
        {"margins": {RowKey("a"): -0.1}},
        {"tolerance": -0.1},
        {"alpha": 1.0},
        {"looks": ()},
        {"looks": (0, 8)},
        {"looks": (8, 8)},
    ],
)
def test_rule_refuses_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="gate"):
        GateRule(**wrong)


def test_looks_share_the_error() -> None:
    rule = GateRule()
    assert sum(map(rule.look_alpha, rule.looks)) == pytest.approx(rule.alpha)


def test_the_pairs_that_decide_an_open_row_by_hand() -> None:
    # From tolerance to margin it is 0.0339 on the log scale. Two-sided t of look 9 (alpha 0.05 * 9 / 79): 3.69 in 8.
    rule = GateRule()
    needed = [rule.replicates_needed(RowKey("a"), Estimate(0.03, sd / 2, 3, 4)) for sd in (0.001, 0.0135, 0.015, 1.0)]
    assert needed == [6, 9, 13, None]
    assert rule.replicates_needed(RowKey("a"), Estimate()) is None


def test_pair_log_ratio_of_blocks_worked_by_hand() -> None:
    # Block medians 1, 2 | 1, 8 against 2, 2 | 2, 2: differences log 2, 0, log 2, -log 4.
    blocks_a = [[1.0, 1.0, 9.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0], [8.0, 8.0, 0.1]]
    blocks_b = [[2.0, 2.0, 2.0]] * 4
    assert pair_log_ratio(blocks_a, blocks_b) == pytest.approx(math.log(2) / 2)


def test_pair_log_ratio_is_blind_to_steady_drift_and_to_one_burst() -> None:
    drift = np.exp(0.02 * np.arange(12))
    drift[4:6] *= 3
    sides = np.tile([0, 1, 1, 0], 3)
    blocks = (drift * np.where(sides, 1.1, 1.0))[:, None] * np.ones(5)
    assert pair_log_ratio(blocks[sides == 0], blocks[sides == 1]) == pytest.approx(math.log(1.1), abs=1e-12)


def test_pair_log_ratio_works_over_leading_axes() -> None:
    blocks = np.random.default_rng(0).lognormal(size=(3, 2, 4, 5))
    found = pair_log_ratio(blocks, 2 * blocks)
    assert found.shape == (3, 2)
    assert found == pytest.approx(math.log(2))


@pytest.mark.parametrize(("count_a", "count_b"), [(4, 2), (3, 3), (0, 0)])
def test_pair_log_ratio_needs_whole_groups(count_a: int, count_b: int) -> None:
    with pytest.raises(ValueError, match="same even number of blocks"):
        pair_log_ratio(np.ones((count_a, 5)), np.ones((count_b, 5)))


def test_the_estimate_of_pairs_is_the_t_interval() -> None:
    evidence = PairEvidence(Script({"a": ratios(0.1, 0.2)}).measure_pair)
    assert evidence.estimate(RowKey("a")).interval(0.5).has_interval is False
    for _ in range(2):
        assert evidence.measure([RowKey("a")]) == {}
    change = evidence.estimate(RowKey("a")).interval(0.5)
    # t(1) at 0.75 is 1, the standard error 0.05.
    assert (change.value, *change.ends) == pytest.approx((0.15, 0.1, 0.2))
    assert evidence.estimate(RowKey("a")).p_above(0.15) == pytest.approx(0.5)


def test_generator_has_the_noise_it_states() -> None:
    random = np.random.default_rng(0)
    still = Noise(0.0, 0.02, 0.0, 0.0, 4.0, 1.0, 0.0, 0.0)
    samples = block_samples(random, still, np.zeros((100, 20)), 50)
    assert np.std(np.log(samples)) == pytest.approx(0.02, rel=0.02)
    bursts = Noise(0.0, 0.0, 0.0, 0.02, 5.0, 1.5, 0.0, 0.0)
    samples = block_samples(random, bursts, np.zeros(100_000), 1)
    # A block lies in a burst unless none began k blocks earlier that lasts longer: 1 - prod(1 - 0.02 * 0.8^k).
    assert np.mean(samples > 1.4) == pytest.approx(1 - math.prod(1 - 0.02 * 0.8**k for k in range(60)), abs=0.005)
    spikes = Noise(0.0, 0.0, 0.0, 0.0, 4.0, 1.0, 0.1, 0.3)
    assert np.mean(block_samples(random, spikes, np.zeros(1000), 50) > 1) == pytest.approx(0.1, abs=0.005)


def tally(noise: Noise, change: float, gates: int, rows: int = 4) -> tuple[Counter[str], Counter[str]]:
    """The verdicts of the one changed row and of the identical rows, over many gates of a noisy machine."""
    changed: Counter[str] = Counter()
    identical: Counter[str] = Counter()
    for seed in range(gates):
        changes = {"changed": change} | {f"row {index}": 0.0 for index in range(1, rows)}
        machine = SyntheticMachine(seed, noise, changes)
        first, *rest = judge(machine.rows, PairEvidence(machine.measure_pair), GateRule(), always)
        changed[str(first.verdict)] += 1
        identical.update(str(row.verdict) for row in rest)
    return changed, identical


@pytest.mark.slow
def test_error_rates_on_a_shared_machine() -> None:
    """3 % process jitter, drift, bursts and spikes: 400 gates of three identical rows and one at +10 %."""
    gates = 400
    slower, identical = tally(SHARED_CI, 0.10, gates)
    assert slower["regressed"] / gates > 0.95
    assert slower["ok"] == 0
    assert identical["regressed"] / (3 * gates) < 0.005
    assert identical["ok"] / (3 * gates) > 0.97


@pytest.mark.slow
@pytest.mark.drawn("check")
@pytest.mark.parametrize("machine", ["quiet", "laptop"])
def test_error_rates_on_calmer_machines(machine: str) -> None:
    slower, identical = tally(NOISE_LEVELS[machine], 0.10, 250)
    assert slower["regressed"] > 0.99 * 250
    assert identical["ok"] > 0.999 * 750


@pytest.mark.slow
def test_a_change_at_the_tolerance_is_called_as_rarely_as_alpha_says() -> None:
    at_tolerance, _ = tally(LAPTOP, 0.015, 500, rows=1)
    assert at_tolerance["regressed"] / 500 < 0.025 + 0.01
    at_margin, _ = tally(LAPTOP, 0.05, 500, rows=1)
    assert at_margin["ok"] / 500 < 0.025 + 0.01


@pytest.mark.slow
def test_a_machine_too_noisy_to_judge_is_inconclusive_rather_than_wrong() -> None:
    wild = Noise(0.15, 0.1, 0.02, 0.05, 4.0, 2.0, 0.1, 1.0)
    changed, identical = tally(wild, 0.10, 200)
    assert identical["regressed"] / 600 < 0.005
    assert changed["ok"] / 200 < 0.05
    assert identical["inconclusive"] / 600 > 0.5


@pytest.mark.slow
def test_many_rows_at_the_tolerance_rarely_fail_the_gate() -> None:
    """Holm limits the error of a whole gate of 28 rows, each slower by what is just tolerated."""
    failed = 0
    for seed in range(60):
        machine = SyntheticMachine(seed, SHARED_CI, {str(row): 0.015 for row in range(28)})
        rows = judge(machine.rows, PairEvidence(machine.measure_pair), GateRule(), always)
        failed += exit_code(rows) == ExitCode.REGRESSED
    assert failed / 60 <= 0.05 + 0.03


@pytest.mark.slow
@pytest.mark.parametrize(
    ("series", "change", "found"),
    [
        (NOTHING_BESIDE, 0.05, 0.95),
        (NOTHING_BESIDE, 0.1, 0.99),
        (BESIDE_TWO_LOOPS, 0.05, 0.6),
        (BESIDE_TWO_LOOPS, 0.1, 0.99),
        (BESIDE_TWO_LOOPS, 0.2, 0.99),
    ],
)
def test_a_slowdown_is_found_in_five_minutes(series: Series, change: float, found: float) -> None:
    seen = gate_shares(series, change)
    assert seen["found"] >= found
    assert seen["alarms"] <= 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("series", "rows", "budget_s", "decided"),
    [
        (NOTHING_BESIDE, 8, 300.0, 0.99),
        (BESIDE_TWO_LOOPS, 8, 300.0, 0.9),
        (NOTHING_BESIDE, 22, 600.0, 0.99),
        (BESIDE_TWO_LOOPS, 22, 600.0, 0.9),
    ],
)
def test_unchanged_code_is_green_and_decided_within_the_budget(
    series: Series, rows: int, budget_s: float, decided: float
) -> None:
    """`decided`: gates without an inconclusive row; 600 s and 22 rows are those of the suite `ci`."""
    seen = gate_shares(series, 0.0, rows, budget_s)
    assert seen["alarms"] <= 0.001
    assert seen["green"] >= 0.99
    assert seen["ok"] >= 0.97
    assert seen["decided"] >= decided
