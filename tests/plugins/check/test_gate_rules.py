"""The gate's rules on scripted pairs, and its error rates on a synthetic noisy machine."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import LAPTOP, NOISE_LEVELS, SHARED_CI, Noise, SyntheticMachine, block_samples

from ctxbench.base.number import Number
from ctxbench.plugins.check.result import ExitCode, exit_code
from ctxbench.plugins.check.rows import NO_ROOM, OUT_OF_TIME, RowKey, RowVerdict
from ctxbench.plugins.check.rules import (
    CONTAINED,
    CONTROL_MOVED,
    CORRECTED,
    NO_TIME,
    UNCONFIRMED,
    GateRule,
    PairFailure,
    PairRatios,
    PairResult,
    Side,
    estimate_from_pairs,
    pair_log_ratio,
    run_gate,
)

RULE = GateRule(looks=(4, 8))


def always() -> bool:
    return True


def pairs_left(count: int) -> Callable[[], bool]:
    """A budget of so many pairs."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


def around(change: float, control: float = 0.0) -> Iterator[PairResult]:
    """Pairs whose log ratios lie closely around a true change."""
    wobbles = itertools.cycle([-0.001, 0.001])
    return (PairRatios(math.log1p(change) + wobble, math.log1p(control)) for wobble in wobbles)


class Script:
    """A pair source that plays a list of results for each row and notes which rows it was asked for."""

    def __init__(self, results: Mapping[str, Iterable[PairResult]]) -> None:
        self.results = {RowKey(row): iter(series) for row, series in results.items()}
        self.asked: list[list[str]] = []

    def measure_pair(self, rows: Sequence[RowKey]) -> dict[RowKey, PairResult]:
        self.asked.append([row.case for row in rows])
        return {row: next(self.results[row]) for row in rows}


def gate(script: Script, has_time: Callable[[], bool] = always, rule: GateRule = RULE) -> tuple[RowVerdict, ...]:
    return run_gate(list(script.results), script.measure_pair, rule, has_time)


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
    ratios = pair_log_ratio(blocks, 2 * blocks)
    assert ratios.shape == (3, 2)
    assert ratios == pytest.approx(math.log(2))


@pytest.mark.parametrize(("count_a", "count_b"), [(4, 2), (3, 3), (0, 0)])
def test_pair_log_ratio_needs_whole_groups(count_a: int, count_b: int) -> None:
    with pytest.raises(ValueError, match="same even number of blocks"):
        pair_log_ratio(np.ones((count_a, 5)), np.ones((count_b, 5)))


def test_the_estimate_of_pairs_is_the_t_interval() -> None:
    estimate = estimate_from_pairs([PairRatios(0.1, 0.01), PairRatios(0.2, 0.03)], 0.5)
    # t(1) at 0.75 is 1, the standard error 0.05.
    assert (estimate.change.value, *estimate.change.ends) == pytest.approx((0.15, 0.1, 0.2))
    assert estimate.control == pytest.approx(0.02)


def test_an_unchanged_row_is_ok_at_the_first_look() -> None:
    rows = gate(Script({"a": around(0.0)}))
    (row,) = rows
    assert (row.verdict, row.status, row.replicates, exit_code(rows)) == ("ok", "measured", 4, ExitCode.OK)
    assert row.change.low < row.change.value < row.change.high < 0.05


def test_a_faster_row_is_ok() -> None:
    rows = gate(Script({"a": around(-0.3)}))
    assert rows[0].change.value == pytest.approx(-0.3, abs=0.002)
    assert exit_code(rows) == ExitCode.OK


def test_a_slower_row_is_regressed_after_new_pairs_that_measure_it_alone() -> None:
    script = Script({"a": around(0.0), "b": around(0.2)})
    rows = gate(script)
    assert [row.verdict for row in rows] == ["ok", "regressed"]
    assert script.asked == [["a", "b"]] * 4 + [["b"]] * 4
    assert rows[1].replicates == 8
    assert exit_code(rows) == ExitCode.REGRESSED


def test_the_confirmation_s_change_is_that_of_its_own_pairs() -> None:
    script = Script({"a": itertools.chain(itertools.islice(around(0.4), 4), around(0.2))})
    assert gate(script)[0].change.value == pytest.approx(0.2, abs=0.002)


def test_a_flag_that_new_pairs_deny_is_inconclusive() -> None:
    script = Script({"a": itertools.chain(itertools.islice(around(0.4), 4), around(0.0))})
    (row,) = gate(script)
    assert (row.verdict, row.replicates, row.reason) == (
        "inconclusive",
        8,
        "The first pairs showed a regression, the confirmation run showed none.",
    )


def test_a_flag_that_new_pairs_leave_open_is_inconclusive() -> None:
    script = Script({"a": itertools.chain(itertools.islice(around(0.4), 4), around(0.05))})
    (row,) = gate(script)
    assert (row.verdict, row.replicates) == ("inconclusive", 12)
    assert row.reason.startswith("The first pairs showed a regression, the confirmation run did not decide.")


@pytest.mark.slow
def test_a_change_at_the_margin_is_inconclusive_after_all_looks() -> None:
    rows = gate(Script({"a": around(0.05)}))
    assert (rows[0].verdict, rows[0].replicates) == ("inconclusive", 8)
    assert rows[0].change.low < 0.05 < rows[0].change.high
    assert exit_code(rows) == ExitCode.INCONCLUSIVE


def test_the_margin_can_be_the_row_s_own() -> None:
    rule = GateRule(looks=(4, 8), margins={RowKey("b"): 0.3})
    rows = gate(Script({"a": around(0.2), "b": around(0.2)}), rule=rule)
    assert [row.verdict for row in rows] == ["regressed", "ok"]


def test_holm_asks_more_of_a_row_when_more_are_flagged() -> None:
    # Alone, the confirming pairs of "a" pass at the first look: p is 0.0081, 0.0083 is allowed. Among three they fail.
    weak = [PairRatios(math.log1p(0.05) + x, 0.0) for x in (0.01, 0.02, 0.03, 0.02)]
    noisy = [PairRatios(math.log1p(0.05) + x, 0.0) for x in (-0.2, 0.2) * 4]

    def flagged_then(pairs: Iterable[PairResult]) -> Iterable[PairResult]:
        return itertools.chain(itertools.islice(around(0.4), 4), pairs)

    alone = gate(Script({"a": flagged_then(weak)}))
    assert (alone[0].verdict, alone[0].replicates) == ("regressed", 8)
    others = {row: flagged_then(noisy) for row in ("b", "c")}
    among = gate(Script({"a": flagged_then([*weak, *noisy[:4]]), **others}))
    assert [row.verdict for row in among] == ["inconclusive"] * 3
    in_time = gate(Script({"a": flagged_then(weak), **{row: flagged_then(noisy) for row in others}}), pairs_left(8))
    assert in_time[0].reason.endswith(f"the time budget was spent. {CORRECTED}")
    assert not in_time[0].change.has_interval


def test_a_control_that_moves_makes_every_verdict_inconclusive() -> None:
    script = Script({"a": around(0.0, control=0.08), "b": around(0.3, control=-0.08)})
    rows = gate(script)
    assert [row.verdict for row in rows] == ["inconclusive"] * 2
    assert all("the machine became slower or faster" in row.reason for row in rows)
    assert [row.control for row in rows] == pytest.approx([0.08, -0.08])


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_a_budget_that_ends_before_the_first_look_is_never_ok(pairs: int) -> None:
    rows = gate(Script({"a": around(0.0)}), has_time=pairs_left(pairs))
    (row,) = rows
    assert (row.verdict, row.replicates) == ("inconclusive", pairs)
    assert exit_code(rows) == (ExitCode.INCONCLUSIVE if pairs else ExitCode.NOTHING_COMPARED)


def test_a_budget_that_ends_during_the_confirmation_is_inconclusive() -> None:
    rows = gate(Script({"a": around(0.0), "b": around(0.4)}), has_time=pairs_left(6))
    assert [(row.verdict, row.replicates) for row in rows] == [("ok", 4), ("inconclusive", 6)]


def test_a_regression_that_the_time_did_not_let_confirm_says_that() -> None:
    (row,) = gate(Script({"a": around(0.23)}), has_time=pairs_left(6))
    assert (row.verdict, row.reason) == (
        "inconclusive",
        UNCONFIRMED,
    )


def test_a_budget_that_ends_between_looks_tells_the_interval_of_the_look_that_left_it_open() -> None:
    # The fifth and sixth pairs would draw an interval at the next look's confidence below the margin.
    first = [PairRatios(x, 0.0) for x in (-0.04, 0.06, 0.0, 0.02)]
    (row,) = gate(Script({"a": [*first, *itertools.islice(around(0.0), 3)]}), has_time=pairs_left(7))
    at_look = estimate_from_pairs(first, 1 - RULE.look_alpha(4)).change
    assert (row.change.value, *row.change.ends) == pytest.approx([math.expm1(x) for x in (0.01, *at_look.ends)])
    assert (row.verdict, row.replicates) == ("inconclusive", 7)
    assert row.reason == f"{NO_TIME} The first 4 of these pairs left it open: {CONTAINED}"


@pytest.mark.parametrize(
    ("pairs", "count", "reason"),
    [
        ([-0.3, 0.3, 0.0], 3, NO_TIME),  # no look yet
        ([-3.0, 3.0, 1.0, 0.0], 4, f"{NO_TIME} {CONTAINED}"),  # ends further apart than 10 times
        ([0.0, 0.001, 0.0, -0.001], 4, f"{NO_TIME} {CONTROL_MOVED}"),  # below the margin
        ([0.4, 0.401, 0.4, 0.399, 0.4, 0.41], 6, UNCONFIRMED),
        ([0.4, 0.401, 0.4, 0.399, 0.0, 0.001, 0.0, 0.001], 8, "The first pairs showed a regression, the confirmation "
            "run showed none."),
    ],
)  # fmt: skip
def test_an_interval_that_is_not_why_a_row_is_inconclusive_is_not_told(
    pairs: list[float], count: int, reason: str
) -> None:
    control = 0.08 if reason.endswith(CONTROL_MOVED) else 0.0
    (row,) = gate(Script({"a": [PairRatios(x, control) for x in pairs]}), has_time=pairs_left(count))
    assert (row.verdict, row.replicates, row.reason) == ("inconclusive", count, reason)
    assert (math.isfinite(row.change.value), row.change.has_interval) == (True, False)


@given(st.lists(st.floats(-0.3, 0.3), min_size=24, max_size=24), st.integers(1, 24), st.floats(-0.1, 0.1))
@settings(max_examples=200, deadline=None)
def test_no_inconclusive_row_has_an_interval_on_one_side_of_the_margin(
    ratios: list[float], budget: int, control: float
) -> None:
    (row,) = gate(Script({"a": [PairRatios(x, control) for x in ratios]}), pairs_left(budget))
    assert row.verdict != "inconclusive" or not row.change.has_interval or row.change.low <= 0.05 <= row.change.high


def test_a_clear_regression_is_confirmed_before_undecided_rows_go_on() -> None:
    script = Script({"a": around(0.05), "b": around(0.4)})
    rows = gate(script, has_time=pairs_left(8))
    assert [(row.verdict, row.replicates) for row in rows] == [("inconclusive", 4), ("regressed", 8)]
    assert exit_code(rows) == ExitCode.REGRESSED


def test_a_gate_may_end_with_the_first_certain_regression() -> None:
    script = Script({"slow": around(0.2), "same": around(0.0), "open": around(0.05)})
    found = run_gate(list(script.results), script.measure_pair, RULE, always, end_at_regression=True)
    assert [row.verdict for row in found] == ["regressed", "ok", "inconclusive"]
    assert found[2].reason == f"The check ended at the regression of another row. {CONTAINED}"
    assert exit_code(found) == ExitCode.REGRESSED
    assert script.asked == [["slow", "same", "open"]] * 4 + [["slow"]] * 4


def test_without_a_regression_no_row_ends_early() -> None:
    script = Script({"same": around(0.0), "open": around(0.05)})
    found = run_gate(list(script.results), script.measure_pair, RULE, always, end_at_regression=True)
    assert [row.replicates for row in found] == [4, RULE.looks[-1]]
    assert "regression of another row" not in found[1].reason


def test_a_row_that_newly_fails_is_broken_and_leaves() -> None:
    script = Script({"a": around(0.0), "b": [PairFailure("candidate", "out of memory")]})
    rows = gate(script)
    row = rows[1]
    assert (row.status, row.verdict, row.reason) == ("broken", None, "out of memory")
    assert script.asked == [["a", "b"], ["a"], ["a"], ["a"]]
    assert exit_code(rows) == ExitCode.BROKEN


def test_a_row_that_fails_while_it_is_confirmed_is_broken() -> None:
    crash = [PairFailure("candidate", "crashed")]
    rows = gate(Script({"a": itertools.chain(itertools.islice(around(0.4), 4), crash)}))
    assert (rows[0].status, rows[0].replicates) == ("broken", 4)


def test_a_row_without_a_baseline_is_not_compared() -> None:
    rows = gate(Script({"a": [PairFailure("baseline", "not in the baseline")]}))
    assert (rows[0].status, exit_code(rows)) == ("not compared", ExitCode.NOTHING_COMPARED)
    rows = gate(Script({"a": [PairFailure("both", "out of memory on both sides")], "b": around(0.0)}))
    assert ([row.status for row in rows], exit_code(rows)) == (["not compared", "measured"], ExitCode.OK)


def test_a_baseline_that_fails_after_it_was_measured_is_inconclusive() -> None:
    script = Script({"a": [*itertools.islice(around(0.0), 2), PairFailure("baseline", "crashed")]})
    rows = gate(script)
    assert (rows[0].verdict, exit_code(rows)) == ("inconclusive", ExitCode.INCONCLUSIVE)


GPU_FULL = "oom: out of memory: CUDA out of memory. Tried to allocate 2.00 GiB."
GPU_BUSY = "error: AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
STOPPED = "timeout: still in the measurement after 60 s"


@pytest.mark.parametrize(
    ("message", "excuse", "told"),
    [
        (GPU_FULL, NO_ROOM, "The GPU had no room for one side while it had for the other:"),
        (GPU_BUSY, NO_ROOM, "The GPU had no room for one side while it had for the other:"),
        (STOPPED, OUT_OF_TIME, "It was stopped at a time limit, which other work on the machine can cause:"),
    ],
)
@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize("pairs", [0, 2])
def test_a_failure_of_one_side_that_others_may_cause_is_inconclusive(
    message: str, excuse: str, told: str, side: Side, pairs: int
) -> None:
    failure = PairFailure(side, message, excuse=excuse)
    script = Script({"a": [*itertools.islice(around(0.0), pairs), failure], "b": around(0.0)})
    rows = gate(script)
    assert (rows[0].status, rows[0].verdict, rows[0].replicates) == ("measured", "inconclusive", pairs)
    assert rows[0].reason == f"{told} {message}"
    assert (rows[1].verdict, exit_code(rows)) == ("ok", ExitCode.INCONCLUSIVE)


@pytest.mark.parametrize(("message", "excuse"), [(GPU_FULL, NO_ROOM), (STOPPED, OUT_OF_TIME)])
def test_where_both_sides_fail_so_nothing_is_compared(message: str, excuse: str) -> None:
    rows = gate(Script({"a": [PairFailure("both", message, excuse=excuse)]}))
    assert (rows[0].status, exit_code(rows)) == ("not compared", ExitCode.NOTHING_COMPARED)


def row_verdict(status: str, verdict: str | None, replicates: int = 8) -> RowVerdict:
    return RowVerdict(RowKey("a"), status, verdict, Number(0.0, -0.1, 0.1), 0.0, replicates, "")  # type: ignore[arg-type]  # any strings


OK, SLOW, OPEN = (row_verdict("measured", verdict) for verdict in ("ok", "regressed", "inconclusive"))
BROKEN, APART = row_verdict("broken", None, 0), row_verdict("not compared", None, 0)


@pytest.mark.parametrize(
    ("rows", "code", "lenient"),
    [
        ([], 5, 5),
        ([APART], 5, 5),
        ([row_verdict("measured", "inconclusive", 0)], 5, 5),
        ([OK, APART], 0, 0),
        ([OK, OPEN], 3, 0),
        ([OK, OPEN, SLOW], 1, 1),
        ([OK, OPEN, SLOW, BROKEN], 4, 4),
        ([BROKEN], 4, 4),
    ],
)
def test_exit_codes(rows: list[RowVerdict], code: int, lenient: int) -> None:
    assert exit_code(rows) == code
    assert exit_code(rows, inconclusive_is="ok") == lenient


def test_no_rows_is_nothing_compared() -> None:
    assert exit_code(gate(Script({}))) == ExitCode.NOTHING_COMPARED


def test_a_pair_source_must_answer_for_every_row() -> None:
    with pytest.raises(ValueError, match="returned nothing for the row 'a'"):
        run_gate([RowKey("a")], lambda rows: {}, RULE, always)
    with pytest.raises(ValueError, match="same row twice"):
        run_gate([RowKey("a")] * 2, lambda rows: {}, RULE, always)
    with pytest.raises(ValueError, match="finite"):
        PairRatios(math.nan, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": 0.0},
        {"margins": {RowKey("a"): -0.1}},
        {"alpha": 1.0},
        {"looks": ()},
        {"looks": (1, 8)},
        {"looks": (8, 8)},
    ],
)
def test_rule_refuses_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="gate"):
        GateRule(**wrong)


def test_looks_share_the_error() -> None:
    rule = GateRule()
    assert sum(map(rule.look_alpha, rule.looks)) == pytest.approx(rule.alpha)


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
        first, *rest = run_gate(machine.rows, machine.measure_pair, GateRule(), always)
        changed[str(first.verdict)] += 1
        identical.update(str(row.verdict) for row in rest)
    return changed, identical


@pytest.mark.slow
def test_error_rates_on_a_shared_machine() -> None:
    """3 % process jitter, drift, bursts and spikes: 800 gates of three identical rows and one at +10 %."""
    gates = 800
    slower, identical = tally(SHARED_CI, 0.10, gates)
    assert slower["regressed"] / gates > 0.95
    assert slower["ok"] == 0
    assert identical["regressed"] / (3 * gates) < 0.005
    assert identical["ok"] / (3 * gates) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["quiet", "laptop"])
def test_error_rates_on_calmer_machines(machine: str) -> None:
    slower, identical = tally(NOISE_LEVELS[machine], 0.10, 500)
    assert slower["regressed"] > 0.99 * 500
    assert identical["ok"] > 0.999 * 1500


def test_a_change_at_the_margin_is_called_as_rarely_as_alpha_says() -> None:
    at_margin, _ = tally(LAPTOP, 0.05, 1000, rows=1)
    assert at_margin["ok"] / 1000 < 0.025 + 0.01
    assert at_margin["regressed"] / 1000 < 0.005


@pytest.mark.slow
def test_a_machine_too_noisy_to_judge_is_inconclusive_rather_than_wrong() -> None:
    wild = Noise(0.15, 0.1, 0.02, 0.05, 4.0, 2.0, 0.1, 1.0)
    changed, identical = tally(wild, 0.10, 200)
    assert identical["regressed"] / 600 < 0.005
    assert changed["ok"] / 200 < 0.05
    assert identical["inconclusive"] / 600 > 0.5


@pytest.mark.slow
def test_many_rows_at_the_margin_rarely_fail_the_gate() -> None:
    """Holm and the confirmation run limit the error of a whole gate of 28 rows, each as slow as is just allowed."""
    failed = 0
    for seed in range(60):
        machine = SyntheticMachine(seed, SHARED_CI, {str(row): 0.05 for row in range(28)})
        failed += exit_code(run_gate(machine.rows, machine.measure_pair, GateRule(), always)) == ExitCode.REGRESSED
    assert failed / 60 <= 0.05 + 0.03
