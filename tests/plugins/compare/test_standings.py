"""Standings: order, ratios, front and sentences on plain numbers."""

import math
from dataclasses import replace

import pytest

from ctxbench.base.number import Number, order, ratio, rough_ratio
from ctxbench.plugin import plugins
from ctxbench.plugins.compare.ranking import Standing, front, ranked, sentence, sentences, shared_axes

ALL = ["params", "macs", "memory_train", "latency_infer"]


def standing(
    label: str,
    params: int,
    macs: int,
    memory: int | None,
    low: float,
    high: float,
    candidate: bool = False,
    status: str = "ok",
) -> Standing:
    """A row whose latency has the interval from `low` to `high` milliseconds."""
    values = {"params": Number(params), "macs": Number(macs), "latency_infer": Number((low + high) / 2, low, high)}
    if memory is not None:
        values["memory_train"] = Number(memory)
    return Standing(label, candidate, values if status == "ok" else {}, status, "why")


@pytest.mark.skipif("recall" not in plugins(), reason="needs the plugin recall")
def test_ability_is_on_the_front_where_it_is_known_and_its_intervals_decide() -> None:
    def able(label: str, macs: int, *segment: float) -> Standing:
        return Standing(label, label == "mine", {"macs": Number(macs), "recall_segment": Number(*segment)})

    rows = [able("mine", 2, 60, 55, 65), able("better", 2, 70, 66, 74), able("alike", 1, 58, 50, 65)]
    axes = shared_axes(rows)
    assert axes == ["macs", "recall_segment"]
    assert [row.label for row in front(rows, axes)] == ["better", "alike"]
    assert sentences(rows)[0] == "On the Pareto front: better and alike."


MINE = standing("mine", 100, 1000, 500, 9.9, 10.1, candidate=True)


BUSY = "inference latency cannot be compared: other work kept 94% of the cores busy."


def time(*medians: float, others_share: float = 0.0) -> Number:
    """A time with these process medians, in rounds 1, 2, ..., and an interval from the smallest to the largest."""
    ordered = sorted(medians)
    ends = ordered[len(ordered) // 2], ordered[0], ordered[-1]
    return Number(*ends, processes=dict(enumerate(medians, 1)), others_share=others_share)


def test_a_ratio_is_the_mean_over_common_rounds_with_students_interval() -> None:
    # Log ratios ln 2 - 0.1, ln 2, ln 2 + 0.1: the standard error is 0.1 / sqrt(3), and t of two degrees is 4.3027.
    found = ratio(time(2 * math.exp(-0.1) * 5, 2.0 * 7, 2 * math.exp(0.1) * 9), time(5, 7, 9))
    reach = 4.302653 * 0.1 / math.sqrt(3)
    expected = (2, 2 * math.exp(-reach), 2 * math.exp(reach))
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-6)
    assert found.text() == "2.0 [1.6, 2.6]"


def test_only_rounds_that_both_have_make_a_ratio() -> None:
    one = Number(1, 1, 1, processes={1: 1.0, 2: 1.0, 4: 1.0, 5: 1.0})
    found = ratio(one, Number(2, 2, 2, processes={2: 2.0, 3: 9.0, 4: 2.0, 5: 2.0}))
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    for found in (ratio(one, Number(2, 2, 2, processes={2: 2.0, 3: 9.0, 4: 2.0})), ratio(Number(1), Number(2))):
        assert (found.value, found.has_interval) == (0.5, False)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Number(1.6, 1.55, 1.66), "1.60 [1.55, 1.66]"),
        (Number(26.8, 25.1, 28.6), "27 [25, 29]"),
        (Number(1.6, 1.6, 1.6), "1.600 [1.600, 1.600]"),
        (Number(0.004, 0.0038, 0.0042), "0.0040 [0.0038, 0.0042]"),
        (Number(1.05, 1.004, 1.11), "1.050 [1.004, 1.110]"),  # not 1.00
        (Number(1.05, 0.998, 1.11), "1.05 [1.00, 1.11]"),
        (Number(1.0003), "1.0003"),
        (Number(1.004), "1.004"),
        (Number(1.0), "1.00"),
        (Number(4.118), "4.12"),
        (Number(36.64), "36.6"),
        (rough_ratio(1.0003), "1.00"),
    ],
)
def test_a_ratio_has_the_digits_that_its_interval_justifies_and_is_not_1_if_it_differs(
    found: Number, text: str
) -> None:
    assert replace(found, is_ratio=True).text() == text


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Number(3), Number(4), -1),
        (Number(4), Number(4), 0),
        (Number(2, 1, 3), Number(3.5, 3, 4), 0),
        (Number(2, 1, 2.9), Number(3.5, 3, 4), -1),
        (Number(2, 0, math.inf), Number(90, 80, 100), 0),
        (time(10, 11, 12, 13), time(10.1, 11.1, 12.1, 13.1), -1),  # the intervals overlap, each round says the same
        (time(10, 11, 12, 13), time(10.2, 10.9, 12.2, 12.9), 0),
        (time(10, 10, 10), time(12, 12, 12, others_share=0.3), 0),
        (time(10, 10, 10), time(12, 12, 12, others_share=0.1), -1),
        (time(10, 11, 12), Number(12.5, 12.1, 13), -1),  # no rounds
        (time(10, 11, 12), Number(12.5, 11.9, 13), 0),
    ],
)
def test_order_is_exact_for_counts_by_interval_for_times_and_by_their_rounds_where_both_have_them(
    first: Number, second: Number, expected: int
) -> None:
    assert order(first, second) == expected
    assert order(second, first) == -expected


def timed(label: str, macs: int, *medians: float, busy: float = 0.0, candidate: bool = False) -> Standing:
    return Standing(label, candidate, {"macs": Number(macs), "latency_infer": time(*medians, others_share=busy)})


FAST = timed("fast", 1000, 9.9, 10.0, 10.1, candidate=True)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            timed("r", 1000, 15.5, 16.0, 16.5),
            "fast dominates r: 1.60x [1.52, 1.69] less inference latency; the same MACs.",
        ),
        (
            timed("r", 500, 15.5, 16.0, 16.5),
            "fast: 1.60x [1.52, 1.69] less inference latency than r, for 2.00x its MACs.",
        ),
        (
            timed("r", 2000, 4.9, 5.0, 5.1),
            "fast: 2.00x fewer MACs than r, for 2.00x [1.95, 2.05] its inference latency.",
        ),
        (timed("r", 2000, 5, 5, 5, busy=0.94), f"fast: 2.00x fewer MACs than r; {BUSY}"),
        (timed("r", 500, 50, 50, 50, busy=0.94), f"r: 2.00x fewer MACs than fast; {BUSY}"),
        (timed("r", 1000, 5, 5, 5, busy=0.94), f"fast and r: the same MACs; {BUSY}"),
    ],
)
def test_a_sentence_gives_the_ratio_of_rounds_or_says_why_there_is_none(other: Standing, expected: str) -> None:
    assert sentence(FAST, other, ["macs", "latency_infer"]) == expected


def test_a_row_without_a_verdict_dominates_nothing_and_is_dominated_by_nothing() -> None:
    busy = timed("busy", 1, 5, 5, 5, busy=0.5)
    rows = [FAST, busy, timed("worse", 2000, 20, 20, 20), timed("slow", 3000, 24, 24, 24, busy=2)]
    assert [row.label for row in front(rows, ["macs", "latency_infer"])] == ["fast", "busy", "slow"]
    assert sentences(rows)[0] == "On the Pareto front of MACs: busy."


def test_a_disturbed_candidate_is_told_once_and_what_is_far_off_all_the_same() -> None:
    mine = replace(timed("mine", 1000, 1.9, 2.0, 2.1, busy=0.94), is_candidate=True)
    others = [
        timed("near", 2000, 2.2, 2.3, 2.4),
        timed("equal", 1000, 2, 2, 2),
        timed("far", 2000, 690, 700, 710, busy=0.94),
    ]
    found = sentences([mine, *others])
    assert found[1:] == [
        "mine: inference latency is ranked only where it differs clearly: other work kept 94% of the cores busy.",
        "mine: 2.00x fewer MACs than near.",
        "mine and equal: the same MACs.",
        "mine dominates far on both: 2.00x fewer MACs and far less inference latency.",
    ]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (standing("r", 50, 500, 250, 4, 5), "mine is dominated by r on all four."),
        (
            standing("r", 50, 500, 250, 9, 11),
            "mine is dominated by r: 2.00x fewer parameters, 2.00x fewer MACs and 2.00x less training memory; "
            "no clear difference in inference latency.",
        ),
        (
            standing("r", 200, 2000, 1000, 20, 22),
            "mine dominates r on all four: 2.00x fewer parameters, 2.00x fewer MACs, 2.00x less training memory and "
            "2.10x less inference latency.",
        ),
        (
            standing("r", 100, 3000, 500, 9.8, 10.0),
            "mine dominates r: 3.00x fewer MACs; the same parameters and training memory; "
            "no clear difference in inference latency.",
        ),
        (
            standing("r", 100, 1000, 2050, 9.75, 9.85),
            "mine: 4.10x less training memory than r, for 1.02x its inference latency; the same parameters and MACs.",
        ),
        (standing("r", 100, 1000, 500, 10, 12), "mine is statistically tied with r on all four."),
        (
            standing("r", 0, 2000, 500, 10, 12),
            "mine: 2.00x fewer MACs than r, for 100 parameters where it has none; "
            "the same training memory; no clear difference in inference latency.",
        ),
        (standing("r", 0, 0, None, 0, 0, status="oom"), "mine and r cannot be compared: r ended with oom."),
    ],
)
def test_a_sentence_says_how_two_modules_stand(other: Standing, expected: str) -> None:
    assert sentence(MINE, other, ALL) == expected


def test_a_parameter_free_module_has_no_parameters_rather_than_a_ratio() -> None:
    free = standing("free", 0, 1000, 500, 9.9, 10.1, candidate=True)
    assert sentence(free, MINE, ALL).startswith("free dominates mine: no parameters; the same MACs")


def test_ranked_puts_unknown_and_failed_rows_last_and_drops_none() -> None:
    rows = [
        standing("failed", 1, 1, 1, 1, 1, status="timeout"),
        standing("unknown", 1, 1, None, 1, 1),
        standing("large", 1, 1, 9, 1, 1),
        standing("small", 1, 1, 2, 1, 1),
    ]
    assert [row.label for row in ranked(rows, "memory_train")] == ["small", "large", "unknown", "failed"]


def test_an_axis_that_a_measured_row_lacks_is_left_out_and_said() -> None:
    rows = [MINE, standing("r", 50, 500, None, 4, 5), standing("failed", 1, 1, None, 1, 1, status="oom")]
    assert shared_axes(rows) == ["params", "macs", "latency_infer"]
    texts = sentences(rows)
    assert texts[0] == "Not compared, since not every row has it: training memory."
    assert texts[1] == "On the Pareto front: r."
    assert texts[2] == "mine is dominated by r on all three."
    assert texts[3] == "mine and failed cannot be compared: failed ended with oom."
