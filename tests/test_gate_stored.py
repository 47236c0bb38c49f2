"""The decision against a stored baseline: by hand, on scripted processes, and its error rates on synthetic ones."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from ctxbench.gate.baseline import RelativeLatency, StoredRow
from ctxbench.gate.rows import RowKey, RowVerdict
from ctxbench.gate.rules import GateRule
from ctxbench.gate.stored import ProcessFailure, ProcessResult, estimate_from_processes, p_above, run_stored
from ctxbench.statistics import FloatArray

RULE = GateRule(looks=(4, 8))
KNOWN = StoredRow(RelativeLatency(math.log(2), math.log(3)), "", True)


def always() -> bool:
    return True


def processes_left(count: int) -> Callable[[], bool]:
    """A budget of so many processes."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


def around(change: float, wobble: float = 0.001, control: float = 0.0) -> Iterator[ProcessResult]:
    """Processes whose latencies lie closely around a true change against KNOWN."""
    wobbles = itertools.cycle([-wobble, wobble])
    return (RelativeLatency(math.log(2) + math.log1p(change) + each, math.log(3) + control) for each in wobbles)


class Script:
    """A source of processes that plays a list of results for each row and notes which rows it was asked for."""

    def __init__(self, results: Mapping[str, Iterable[ProcessResult]]) -> None:
        self.results = {RowKey(row): iter(series) for row, series in results.items()}
        self.asked: list[list[str]] = []

    def measure_process(self, rows: Sequence[RowKey]) -> dict[RowKey, ProcessResult]:
        self.asked.append([row.case for row in rows])
        return {row: next(self.results[row]) for row in rows}


def gate(
    script: Script,
    baseline: Mapping[str, StoredRow] | None = None,
    has_time: Callable[[], bool] = always,
    rule: GateRule = RULE,
) -> tuple[RowVerdict, ...]:
    known = {row: (baseline or {}).get(row.case, KNOWN) for row in script.results}
    return run_stored(list(script.results), known, script.measure_process, rule, has_time)


def test_the_prediction_interval_worked_by_hand() -> None:
    latencies = [RelativeLatency(0.1, 0.0), RelativeLatency(0.3, 0.0)]
    estimate = estimate_from_processes(latencies, RelativeLatency(0.0, 0.0), 0.5)
    # t(1) at 0.75 is 1; s = 0.1 sqrt 2, times sqrt(1 + 1/2).
    assert (estimate.change, estimate.high - estimate.change) == pytest.approx((0.2, 0.1 * math.sqrt(3)))
    with_error = estimate_from_processes(latencies, RelativeLatency(0.0, 0.0, 0.1), 0.5)
    assert with_error.high - with_error.change == pytest.approx(0.2)
    with_control = estimate_from_processes(latencies, RelativeLatency(0.0, -0.2), 0.5)
    assert with_control.control == pytest.approx(0.2)
    assert with_control.high - with_control.change == pytest.approx(0.1 * math.sqrt(3) + 0.05)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_p_value_belongs_to_the_interval(confidence: float) -> None:
    latencies = [RelativeLatency(x, 0.04) for x in (0.10, 0.13, 0.12, 0.09)]
    baseline = RelativeLatency(0.01, 0.0, 0.005)
    low = estimate_from_processes(latencies, baseline, confidence).low
    assert p_above(latencies, baseline, low) == pytest.approx((1 - confidence) / 2)


def test_one_process_says_nothing_and_equal_ones_all() -> None:
    one = estimate_from_processes([RelativeLatency(0.1, 0.0)], RelativeLatency(0.0, 0.0), 0.95)
    assert (one.change, one.low, one.high) == (0.1, -math.inf, math.inf)
    equal = [RelativeLatency(0.1, 0.0)] * 4
    assert p_above(equal, RelativeLatency(0.0, 0.0), 0.05) == 0.0
    assert p_above(equal, RelativeLatency(0.0, 0.0), 0.15) == 1.0
    with pytest.raises(ValueError, match="finite"):
        RelativeLatency(math.nan, 0.0)


def test_rows_leave_as_they_are_decided() -> None:
    script = Script({"same": around(0.0), "slow": around(0.3), "open": around(0.05), "fast": around(-0.3)})
    same, slow, still_open, fast = gate(script)
    assert [(row.verdict, row.replicates) for row in (same, slow, still_open, fast)] == [
        ("ok", 4),
        ("regressed", 4),
        ("inconclusive", 8),
        ("ok", 4),
    ]
    assert (slow.change, fast.change) == pytest.approx((0.3, -0.3))
    assert 0.05 < slow.low < 0.3 < slow.high
    assert script.asked == [["same", "slow", "open", "fast"]] * 4 + [["open"]] * 4


def test_the_margin_can_be_the_row_s_own() -> None:
    rows = gate(Script({"a": around(0.2), "b": around(0.2)}), rule=GateRule(looks=(4, 8), margins={RowKey("b"): 0.5}))
    assert [row.verdict for row in rows] == ["regressed", "ok"]


def test_holm_is_over_all_rows_that_have_a_latency() -> None:
    # Alone, p is 0.0024 at the second look and 0.0167 is allowed; as one of 20 it would need 0.0008.
    script = {"slow": around(0.12, wobble=0.014)}
    (alone,) = gate(Script(script))
    assert (alone.verdict, alone.replicates) == ("regressed", 8)
    others: dict[str, Iterable[ProcessResult]] = {str(n): around(0.0) for n in range(19)}
    among = gate(Script({"slow": around(0.12, wobble=0.014), **others}))
    assert (among[0].verdict, among[0].replicates) == ("inconclusive", 8)
    unknown = StoredRow(None, "It is not in the baseline.", False)
    among = gate(
        Script({"slow": around(0.12, wobble=0.014), **{n: around(0.0) for n in others}}), dict.fromkeys(others, unknown)
    )
    assert (among[0].verdict, among[0].replicates) == ("regressed", 8)


def test_a_baseline_that_was_measured_badly_decides_nothing() -> None:
    vague = StoredRow(RelativeLatency(math.log(2), math.log(3), error=0.2), "", True)
    rows = gate(Script({"a": around(0.0), "b": around(0.3)}), {"a": vague, "b": vague})
    assert [(row.verdict, row.replicates) for row in rows] == [("inconclusive", 8)] * 2


def test_a_machine_that_has_changed_widens_the_interval() -> None:
    rows = gate(Script({"a": around(0.0, control=0.4), "b": around(0.12, control=-0.4), "c": around(0.4, control=0.4)}))
    assert [row.verdict for row in rows] == ["inconclusive", "inconclusive", "regressed"]
    assert [row.control for row in rows] == pytest.approx([math.expm1(0.4), math.expm1(-0.4), math.expm1(0.4)])


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_a_budget_that_ends_before_the_first_look_is_never_ok(processes: int) -> None:
    (row,) = gate(Script({"a": around(0.0)}), has_time=processes_left(processes))
    assert (row.status, row.verdict, row.replicates) == ("measured", "inconclusive", processes)
    assert row.reason == "The time budget was spent before a decision."


def test_failures_are_broken_only_where_the_baseline_had_worked() -> None:
    unknown = StoredRow(None, "It is not in the baseline.", False)
    failed = StoredRow(None, "The baseline has no latency of this row: oom: too large.", False)
    no_unit = StoredRow(
        None, "The baseline has no confidence interval of this row's latency relative to the control workload.", True
    )
    crash = ProcessFailure("crashed: signal 11")
    script = Script(
        {
            "late": itertools.chain(itertools.islice(around(0.0), 2), [crash]),
            "at once": [crash],
            "both": [crash],
            "mended": around(0.0),
            "new": around(0.0),
            "no unit": around(0.0),
            "no unit, broken": [crash],
        }
    )
    rows = gate(
        script, {"both": failed, "mended": failed, "new": unknown, "no unit": no_unit, "no unit, broken": no_unit}
    )
    assert [(row.row.case, row.status, row.replicates) for row in rows] == [
        ("late", "broken", 2),
        ("at once", "broken", 0),
        ("both", "not compared", 0),
        ("mended", "not compared", 0),
        ("new", "not compared", 0),
        ("no unit", "not compared", 0),
        ("no unit, broken", "broken", 0),
    ]
    assert all(row.verdict is None for row in rows)
    assert rows[0].reason == "crashed: signal 11"
    assert rows[2].reason == "The baseline has no latency of this row: oom: too large. It fails now: crashed: signal 11"
    assert rows[4].reason == "It is not in the baseline."
    assert script.asked[1:] == [["late"]] * 2


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(ValueError, match="returned nothing for the row 'a'"):
        run_stored([RowKey("a")], {RowKey("a"): KNOWN}, lambda rows: {}, RULE, always)
    with pytest.raises(ValueError, match="same row twice"):
        run_stored([RowKey("a")] * 2, {RowKey("a"): KNOWN}, lambda rows: {}, RULE, always)
    assert run_stored([], {}, lambda rows: {}, RULE, always) == ()


def tally(jitter: float, change: float, rows: int = 2000, gate_rows: int = 20, drift: float = 0.0) -> Counter[str]:
    """Verdicts of `rows` rows in gates of `gate_rows`, each process with its own normal latency of spread `jitter`.

    `drift`: the whole machine is slower by this at the time of the candidate, and the rows by 0.8 to 1.2 of it.
    """
    verdicts: Counter[str] = Counter()
    for seed in range(rows // gate_rows):
        random = np.random.default_rng(seed)
        follows = random.uniform(0.8, 1.2, gate_rows) - 1
        stored = {
            RowKey(str(n)): StoredRow(RelativeLatency(jitter * random.standard_normal(), 0.0), "", True)
            for n in range(gate_rows)
        }

        def measure(
            rows: Sequence[RowKey], random: np.random.Generator = random, follows: FloatArray = follows
        ) -> dict[RowKey, ProcessResult]:
            latencies = math.log1p(change) + jitter * random.standard_normal(len(rows))
            return {
                row: RelativeLatency(latency + drift * follows[int(row.case)], drift)
                for row, latency in zip(rows, latencies, strict=True)
            }

        verdicts.update(str(row.verdict) for row in run_stored(list(stored), stored, measure, GateRule(), always))
    return verdicts


@pytest.mark.parametrize("jitter", [0.003, 0.01, 0.03])
def test_identical_code_is_hardly_ever_called_a_regression(jitter: float) -> None:
    """Seen: 0 of 2,000 at each jitter; ok in 100, 99 and 29 %."""
    verdicts = tally(jitter, 0.0)
    assert verdicts["regressed"] / 2000 < 0.005
    assert verdicts["ok"] / 2000 > {0.003: 0.99, 0.01: 0.97, 0.03: 0.2}[jitter]


def test_a_change_at_the_margin_is_called_as_rarely_as_alpha_says() -> None:
    """Seen: 0 of 2,000 regressed, 1.7 % ok."""
    verdicts = tally(0.02, 0.05)
    assert verdicts["regressed"] / 2000 < 0.005
    assert verdicts["ok"] / 2000 < 0.025 + 0.01


@pytest.mark.parametrize(("jitter", "change", "found"), [(0.01, 0.1, 0.85), (0.01, 0.3, 0.99), (0.03, 0.3, 0.98)])
def test_a_slowdown_is_found(jitter: float, change: float, found: float) -> None:
    """Seen: 91 %, 100 % and 99.9 %; +10 % at 3 % jitter is found in 4 %, else inconclusive."""
    verdicts = tally(jitter, change)
    assert verdicts["regressed"] / 2000 > found
    assert verdicts["ok"] / 2000 < 0.005


def test_a_machine_that_is_slower_as_a_whole_raises_no_alarm() -> None:
    """All is slower by 35 %, each row by 0.8 to 1.2 of it. Seen: 0 of 2,000 regressed."""
    assert tally(0.01, 0.0, drift=0.3)["regressed"] / 2000 < 0.005
