"""Pairs of processes: the order of their commands, exact ratios, and failures of a side."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest
import scipy

from ctxbench.base import clocks as this_machine
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure
from ctxbench.plugins.check.child import pair as pair
from ctxbench.plugins.check.evidence import BudgetSpent, PairFailure, PairRatios, PairResult, Side
from ctxbench.plugins.check.pairs import BETWEEN, WITHIN, Pairs, Source, best_pair_s, best_row_s
from ctxbench.plugins.check.rows import OUT_OF_TIME, RowKey
from ctxbench.plugins.check.rules import GateRule
from ctxbench.plugins.check.wire import BLOCK, NEXT, PairRow
from ctxbench.worker.protocol import Answer, Ask, Task

KILLED = Exit(0, 9, False, "")
QUIT = Exit(3, 0, False, "one\nlast words\n")
HUNG = Exit(0, 9, True, "")
LOST = Answer(failure=Failure("crashed", "CUDA error: device-side assert triggered"))
WELL = Answer([2.0, 2.0, 2.0])
READY = Answer()
STOPPED, CLOSED = b"stopped", b"closed"
# What a script plays: an answer, the end of the process, or an error of the worker itself.
Reply = Answer | Exit | BaseException


def failed(message: str) -> Answer:
    return Answer(failure=Failure("error", message))


class Scripted:
    """A worker that plays, for each row, what it answers: to NEXT, then to each BLOCK; what is missing is well.

    Every command goes to `log`, which both sides share, as (side, command, row).
    """

    def __init__(self, side: str, script: Mapping[str, list[Reply]], log: list[tuple[str, bytes, str]]) -> None:
        self.side, self.script, self.log = side, script, log
        self.row = ""
        self.timeouts: set[float | None] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.log.append((self.side, CLOSED, ""))

    def start(self, task: Task, timeout_s: float = math.inf) -> None:
        self.timeouts |= {timeout_s} - {math.inf}
        assert isinstance(task, Ask)
        self.task = task
        names = [row["case"]["module"] for row in json.loads(task.arguments[1])]
        self.rows = iter(names)
        self.log.append((self.side, b"start", ",".join(names)))

    def command(self, command: bytes, timeout_s: float | None = None) -> Answer | Exit:
        self.timeouts.add(timeout_s)
        if command == NEXT:
            self.row = next(self.rows)
            self.replies = iter(self.script.get(self.row, []))
        self.log.append((self.side, command, self.row))
        reply = next(self.replies, WELL) if command else READY
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def stop(self) -> None:
        self.log.append((self.side, STOPPED, ""))


class Bench:
    """Pairs over scripted workers, and what they did."""

    def __init__(
        self, baseline: Mapping[str, list[Reply]], candidate: Mapping[str, list[Reply]], rows: str = "abc"
    ) -> None:
        self.log: list[tuple[str, bytes, str]] = []
        self.shown: list[tuple[int, int, int, str]] = []
        self.workers: list[Scripted] = []
        scripts = {"baseline": baseline, "candidate": candidate}

        def launch(tree: Path | None) -> Scripted:
            assert tree is not None
            self.workers.append(Scripted(tree.name, scripts[tree.name], self.log))
            return self.workers[-1]

        tasks = {RowKey(row): PairRow(Case(row, "", {}, (1, 1, 1, 1)), "infer") for row in rows}
        before, now = (Source(Path("/") / side, tasks) for side in scripts)
        self.pairs = Pairs(
            before, now, Measure(timeout_s=7.0), launch, progress=lambda *shown: self.shown.append(shown)
        )

    def measure(self, rows: str) -> dict[str, PairResult]:
        """One pair's results."""
        return {row.case: result for row, result in self.pairs([RowKey(row) for row in rows]).items()}

    def did(self, *commands: bytes) -> list[tuple[str, str]]:
        """Side and row of each of these commands."""
        return [(side, row) for side, command, row in self.log if command in commands]


def test_blocks_run_there_and_back_and_the_next_pair_begins_with_the_other_side() -> None:
    bench = Bench({}, {}, rows="a")
    for _ in range(3):
        bench.measure("a")
    order = "".join(side[0] for side, _ in bench.did(BLOCK))
    assert order == "bccb" * 3 + "cbbc" * 3 + "bccb" * 3


def test_a_pair_under_way_is_given_up_when_the_time_is_over() -> None:
    bench = Bench({}, {}, rows="ab")
    left = iter([3.0] * 12 + [0.0] * 9)
    bench.pairs.left_s = lambda: next(left)
    with pytest.raises(BudgetSpent):
        bench.measure("ab")
    assert all(worker.timeouts == {3.0} for worker in bench.workers)  # the check's time ends before the row's limit
    assert [command for _, command, _ in bench.log][-4:] == [*[STOPPED] * 2, *[CLOSED] * 2]


def test_a_process_that_is_not_ready_when_the_time_is_over_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(self: Scripted, task: Task, timeout_s: float) -> None:
        assert timeout_s == 3.0
        raise TimeoutError

    bench = Bench({}, {}, rows="a")
    bench.pairs.left_s = lambda: 3.0
    monkeypatch.setattr(Scripted, "start", late)
    with pytest.raises(BudgetSpent):
        bench.measure("a")
    assert [command for _, command, _ in bench.log] == [CLOSED] * 2


def test_a_process_that_the_end_of_the_time_stops_is_no_failure_of_its_row() -> None:
    bench = Bench({}, {"a": [HUNG]}, rows="a")
    left = iter([3.0] * 4 + [0.0])
    bench.pairs.left_s = lambda: next(left, 3.0)
    with pytest.raises(BudgetSpent):
        bench.measure("a")


def test_both_sides_prepare_each_row_before_it_is_timed_and_hold_to_the_time_limit() -> None:
    bench = Bench({}, {}, rows="ab")
    bench.measure("ab")
    assert bench.did(NEXT) == [("baseline", "a"), ("candidate", "a"), ("baseline", "b"), ("candidate", "b")]
    commands = [command for _, command, _ in bench.log]
    assert commands == [*[b"start"] * 2, *[b""] * 2, *([NEXT] * 2 + [BLOCK] * 12) * 2, *[STOPPED] * 2, *[CLOSED] * 2]
    assert all(worker.timeouts == {7.0} for worker in bench.workers)
    assert [json.loads(worker.task.arguments[0])["timeout_s"] for worker in bench.workers] == [7.0, 7.0]
    assert bench.shown == [(0, 0, 2, "a"), (0, 1, 2, "b")]


def test_only_the_rows_asked_for_are_measured_in_their_order() -> None:
    bench = Bench({}, {})
    assert list(bench.measure("ca")) == ["c", "a"]
    assert bench.did(b"start") == [("baseline", "c,a"), ("candidate", "c,a")]


def test_ratios_worked_by_hand() -> None:
    # Medians by the wall: 1 five times and 4 against 2, 2, 2, 1, 8, 16; their log ratios, sorted, are
    # 0, log 2, log 2, log 2, log 4, log 8. Of the processor's time: all 3 against all 6, but for one block of 300.
    baseline = [Answer([3.0, 1.0, 1.0], [1.0, 3.0, 99.0])] * 5 + [Answer([4.0] * 3, [3.0] * 3)]
    medians = [2.0, 2.0, 2.0, 1.0, 8.0, 16.0]
    candidate = [Answer([at, 0.1, 1e3], [6.0, 6.0, 6.0]) for at in medians]
    candidate[2] = replace(candidate[2], cpu=[300.0, 300.0, 6.0])
    bench = Bench({"a": [READY, *baseline]}, {"a": [READY, *candidate]}, rows="a")
    result = bench.measure("a")["a"]
    assert isinstance(result, PairRatios)
    assert (result.wall, result.cpu) == pytest.approx((math.log(2), math.log(2)))


def test_without_the_processor_s_time_of_each_block_there_is_the_wall_s_alone() -> None:
    timed: list[Reply] = [READY, *[Answer([1.0], [1.0])] * 6]
    waited: list[Reply] = [READY, *[Answer([1.0], [1.0])] * 5, Answer([1.0])]
    well: list[Reply] = [READY]
    for before, now in ((timed, waited), (waited, timed), (timed, well)):
        bench = Bench({"a": before}, {"a": now}, rows="a")
        result = bench.measure("a")["a"]
        assert isinstance(result, PairRatios)
        assert result.cpu is None
    assert Bench({"a": timed}, {"a": timed}, rows="a").measure("a") == {"a": PairRatios(0.0, 0.0)}


def test_the_ratio_is_candidate_over_baseline_whichever_begins() -> None:
    slow: list[Reply] = [READY, *[Answer([6.0])] * 6]
    bench = Bench({"a": [READY, *[Answer([2.0])] * 6]}, {"a": slow}, rows="a")
    for _ in range(2):
        result = bench.measure("a")["a"]
        assert isinstance(result, PairRatios)
        assert result.wall == pytest.approx(math.log(3))


def test_after_the_first_pair_the_blocks_of_a_row_go_on_for_the_seconds_that_are_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command takes a second: the first pair of two rows 30, of which 24 are blocks."""
    bench = Bench({}, {}, rows="ab")
    asked = []

    def pair_s(overhead_s: float, rows: int) -> float:
        asked.append((overhead_s, rows))
        return 18.0

    bench.pairs.pair_s = pair_s
    monkeypatch.setattr(this_machine, "here", SimpleNamespace(wall_s=lambda: float(len(bench.log))))
    bench.measure("ab")
    overhead = bench.pairs.seconds[0] - 24
    monkeypatch.setattr("ctxbench.plugins.check.pairs.CYCLES", 1)
    begun = len(bench.log)
    bench.measure("ab")
    bench.measure("ab")
    assert asked == [(overhead, 2)]
    row_s = best_row_s(overhead, 2, 18.0)
    assert 0 < row_s < 8
    assert len([command for _, command, _ in bench.log[begun:] if command == BLOCK]) == 2 * 2 * 4 * math.ceil(row_s / 4)


def test_the_best_seconds_of_a_row_leave_the_least_error() -> None:
    def variance(seconds: float) -> float:
        return (BETWEEN**2 + WITHIN**2 / seconds) * (10.0 + 8 * seconds)

    best = best_row_s(10.0, 8, math.inf)
    assert variance(best) < min(variance(0.99 * best), variance(1.01 * best))
    assert best_row_s(10.0, 8, 18.0) == 1.0  # no more than fits
    assert best_row_s(10.0, 8, 5.0) == 0.0


@pytest.mark.parametrize(("overhead_s", "budget_s", "look"), [(3.8, 60.0, 9), (8.0, 60.0, 6), (3.8, 120.0, 19)])
def test_a_short_check_plans_for_the_look_with_the_narrowest_interval(
    overhead_s: float, budget_s: float, look: int
) -> None:
    rule = GateRule()

    def width(look: int) -> float:
        error = math.sqrt((BETWEEN**2 + WITHIN**2 / best_row_s(overhead_s, 4, budget_s / look)) / look)
        return float(scipy.stats.t.ppf(1 - rule.look_alpha(look) / 2, look - 1)) * error

    assert best_pair_s(overhead_s, 4, budget_s, rule) == budget_s / look
    assert width(look) == min(width(each) for each in rule.looks if budget_s / each > overhead_s)
    assert best_pair_s(10.0, 8, 39.0, rule) == 0.0


FAILURES = {
    "baseline does not prepare": ([failed("old")], [], "baseline", "error: old"),
    "candidate does not prepare": ([], [failed("new")], "candidate", "error: new"),
    "both": ([failed("old")], [failed("new")], "both", "error: new"),
    "candidate in its third block": ([], [READY, WELL, WELL, failed("late")], "candidate", "error: late"),
    "baseline in its first block": ([READY, failed("early")], [], "baseline", "error: early"),
}


@pytest.mark.parametrize(("baseline", "candidate", "side", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_has_its_side_and_sentence_and_the_next_row_goes_on(
    baseline: list[Reply], candidate: list[Reply], side: Side, message: str
) -> None:
    bench = Bench({"b": baseline}, {"b": candidate})
    results = bench.measure("abc")
    assert results == {"a": PairRatios(0.0), "b": PairFailure(side, message), "c": PairRatios(0.0)}
    assert len(bench.did(b"start")) == 2


DEATHS = {
    "a signal": ([], [KILLED], "candidate", "crashed: killed in the measurement by SIGKILL; it printed nothing"),
    "an exit code": (
        [],
        [QUIT],
        "candidate",
        "crashed: the process ended in the measurement with exit code 3; it last printed: last words",
    ),
    "a time limit": ([HUNG], [], "baseline", "timeout: still in the measurement after 7 s"),
    "in a block": ([READY, WELL, KILLED], [], "baseline", "crashed: killed in the measurement by SIGKILL; it printed"),
    "a lost GPU": ([], [LOST], "candidate", "crashed: CUDA error: device-side assert triggered"),
    "a GPU lost in a block": ([READY, LOST], [], "baseline", "crashed: CUDA error: device-side assert triggered"),
    "both": ([HUNG], [KILLED], "both", "crashed: killed in the measurement by SIGKILL"),
    "one dead, one failed": ([failed("old")], [KILLED], "both", "crashed: killed in the measurement by SIGKILL"),
}


@pytest.mark.parametrize(("baseline", "candidate", "side", "message"), DEATHS.values(), ids=DEATHS)
def test_after_a_death_the_other_rows_are_measured_in_new_children_of_the_same_workers(
    baseline: list[Reply], candidate: list[Reply], side: str, message: str
) -> None:
    bench = Bench({"b": baseline}, {"b": candidate})
    results = bench.measure("abc")
    result = results["b"]
    assert isinstance(result, PairFailure)
    assert (result.side, result.process_ended) == (side, True)
    assert result.message.startswith(message)
    assert result.excuse == (OUT_OF_TIME if message.startswith("timeout") else "")
    assert results["a"] == results["c"] == PairRatios(0.0)
    assert bench.did(b"start") == [(each, rows) for rows in ("a,b,c", "c") for each in ("baseline", "candidate")]
    assert len(bench.workers) == 2
    assert bench.did(STOPPED) == [("baseline", ""), ("candidate", "")] * 2
    assert [shown[1:] for shown in bench.shown] == [(0, 3, "a"), (1, 3, "b"), (2, 3, "c")]


def test_a_child_that_dies_before_its_first_command_costs_the_first_row_only() -> None:
    bench = Bench({}, {}, rows="ab")
    launch = bench.pairs.launch

    def dying(tree: Path | None) -> Scripted:
        worker = launch(tree)
        assert isinstance(worker, Scripted)
        real, deaths = worker.command, iter([KILLED] if worker.side == "candidate" else [])
        worker.command = lambda command, timeout_s=None: (  # type: ignore[method-assign]  # a script's own death
            real(command, timeout_s) if command else next(deaths, READY)
        )
        return worker

    bench.pairs.launch = dying
    results = bench.measure("ab")
    assert isinstance(results["a"], PairFailure)
    assert (results["a"].side, results["a"].process_ended) == ("candidate", True)
    assert results["b"] == PairRatios(0.0)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the worker broke")])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_both_workers_are_stopped_and_closed_whatever_is_raised(error: BaseException, at: int) -> None:
    bench = Bench({}, {"a": [*[WELL] * at, error]}, rows="a")
    with pytest.raises(type(error)):
        bench.measure("a")
    assert sorted(bench.did(STOPPED)) == sorted(bench.did(CLOSED)) == [("baseline", ""), ("candidate", "")]
    assert bench.pairs.seconds == []


def test_a_second_worker_that_cannot_be_launched_leaves_the_first_closed() -> None:
    bench = Bench({}, {})
    launch = bench.pairs.launch

    def once(tree: Path | None) -> Any:
        if bench.workers:
            raise OSError("no more processes")
        return launch(tree)

    bench.pairs.launch = once
    with pytest.raises(OSError, match="no more processes"):
        bench.measure("a")
    assert bench.did(CLOSED) == [("baseline", "")]


def test_seconds_keeps_each_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    # A pair begins, its row's blocks begin and end each cycle, it ends.
    now = iter([10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 20.0, 20.2, 20.4, 20.6, 20.8, 21.0])
    bench = Bench({}, {}, rows="a")
    with monkeypatch.context() as patched:
        patched.setattr(this_machine, "here", SimpleNamespace(wall_s=now.__next__))
        bench.measure("a")
        bench.measure("a")
    assert bench.pairs.seconds == [2.5, 1.0]
