"""Pairs of processes: the order of their commands, exact ratios, failures; one side of a pair; the tree it works in."""

import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest
import torch
from scipy.stats import t as student

from ctxbench.base import clocks as this_machine
from ctxbench.base.mode import Mode
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case, Measure
from ctxbench.model.grid import Suite
from ctxbench.model.messages import Failure
from ctxbench.model.suite_file import SuiteFile
from ctxbench.plugins.check.child import pair as pair
from ctxbench.plugins.check.evidence import PairFailure, PairRatios, PairResult, Side
from ctxbench.plugins.check.pairs import BETWEEN, WITHIN, Pairs, Source, best_pair_s, best_row_s
from ctxbench.plugins.check.rows import OUT_OF_TIME, RowKey
from ctxbench.plugins.check.rules import GateRule
from ctxbench.plugins.check.tree_cases import count_exact, list_cases
from ctxbench.plugins.check.trees import Tree
from ctxbench.plugins.check.wire import BLOCK, NEXT, PairRow
from ctxbench.registry.load import import_source
from ctxbench.worker.protocol import Answer, Ask, Task
from ctxbench.worker.tree import is_ctxbench, own_file

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

    def start(self, task: Task) -> None:
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
        return float(student.ppf(1 - rule.look_alpha(look) / 2, look - 1)) * error

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


# One side of a pair

MODULES = """
import time
import weakref
import torch
from torch import nn

alive = weakref.WeakSet()
others = []  # at the making of each module, how many were alive


class Good(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        others.append(len(alive))
        alive.add(self)

    def forward(self, x):
        time.sleep(0.01)
        return x * self.scale


class Raises(Good):
    def forward(self, x):
        raise ValueError("the user's own words")


class NotANumber(Good):
    def forward(self, x):
        return x * self.scale / 0 * 0


class Wrong(Good):
    def forward(self, x):
        return x[:, :1]


class Hungry(Good):
    def forward(self, x):
        return x + torch.empty(2**50)


class LosesTheGpu(Good):
    def forward(self, x):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Tires(Good):
    passes = 0

    def forward(self, x):
        self.passes += 1
        if self.passes > 3:
            raise RuntimeError("tired")
        return super().forward(x)
"""


@pytest.fixture
def module_file(tmp_path: Path) -> Path:
    path = tmp_path / "blocks.py"
    path.write_text(MODULES)
    return path


@pytest.fixture
def machine_time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A machine on which nothing takes time but sleeping, and reading the clock a microsecond.

    A thread is on a core for a quarter of the time; how often it has waited is in the list.
    """
    now, waits = [100.0], [0.0]

    def advance(seconds: float) -> None:
        now[0] += seconds

    def read() -> float:
        advance(1e-6)
        return now[0]

    monkeypatch.setattr(time, "sleep", advance)
    monkeypatch.setattr(time, "perf_counter", read)
    monkeypatch.setattr(this_machine, "here", this_machine.Machine())
    monkeypatch.setattr(this_machine, "monotonic", lambda: now[0])
    monkeypatch.setattr(this_machine, "perf_counter_ns", lambda: round(now[0] * 1e9))
    monkeypatch.setattr(this_machine, "thread_time", lambda: (now[0] - 100.0) / 4)
    monkeypatch.setattr(this_machine, "_waits", lambda: waits[0])
    return waits


def talk(rows: list[PairRow], commands: bytes) -> list[Answer]:
    """Answers of a side: ready, then one to each command."""
    said: list[Answer] = []
    script = iter(commands)

    def emit(answer: Answer) -> bytes:
        said.append(answer)
        return bytes([next(script)]) if len(said) <= len(commands) else b""

    pair.take_side(Measure(warmup_s=0.0), rows, emit)
    return said


def row(path: Path, name: str, mode: Mode = "infer", inject: float = 0.0) -> PairRow:
    return PairRow(Case(name, f"{path}:{name}", {}, (1, 4, 3, 2)), mode, inject)


@pytest.mark.usefixtures("machine_time")
def test_a_block_times_the_row_in_milliseconds_by_both_clocks(module_file: Path) -> None:
    rows = [row(module_file, "Good"), row(module_file, "Good", "train")]
    said = talk(rows, NEXT + BLOCK + BLOCK + NEXT + BLOCK)
    assert said[:2] == [READY, READY]
    for reply in (said[2], said[3], said[5]):
        assert reply.wall == pytest.approx([10.0] * 5)
        assert reply.cpu == pytest.approx([2.5] * 5)
    assert said[4] == READY


@pytest.mark.parametrize(("a_pass", "threads", "times"), [
    (0.0, 1, 5), (0.09, 1, 5), (0.2, 1, 0), (1.0, 1, 0), (math.nan, 1, 0), (0.0, 2, 0),
])  # fmt: skip
def test_the_processor_s_time_is_told_where_a_pass_neither_waits_nor_has_threads(
    module_file: Path,
    machine_time: list[float],
    monkeypatch: pytest.MonkeyPatch,
    a_pass: float,
    threads: int,
    times: int,
) -> None:
    sleep = time.sleep

    def waiting(seconds: float) -> None:
        machine_time[0] += a_pass
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", waiting)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    said = talk([row(module_file, "Good")], NEXT + BLOCK)
    assert said[2].wall == pytest.approx([10.0] * 5)
    assert len(said[2].cpu) == times


@pytest.mark.usefixtures("machine_time")
def test_an_injected_share_is_in_the_time_of_its_row_alone(module_file: Path) -> None:
    rows = [row(module_file, "Good", inject=0.3), row(module_file, "Good", inject=0.0)]
    said = talk(rows, NEXT + BLOCK + NEXT + BLOCK)
    assert said[2].wall == pytest.approx([13.0])  # thirteen passes, more than fit into a block's time, counted as ten
    assert said[4].wall == pytest.approx([10.0] * 5)


@pytest.mark.usefixtures("machine_time")
def test_what_fails_is_a_reply_and_the_next_row_goes_on(module_file: Path) -> None:
    names = ["Raises", "NotANumber", "Wrong", "Hungry", "Missing", "Good"]
    said = talk([row(module_file, name) for name in names], NEXT * 6 + BLOCK)
    failures = [reply.failure for reply in said[1:]]
    expected = [
        ("error", "ValueError: the user's own words (blocks.py, line "),
        ("nan", "the output of the infer pass holds NaN or infinity"),
        ("error", "ValueError: Wrong returns shape [1, 1, 3, 2] for [1, 4, 3, 2]"),
        ("oom", "out of memory: "),
        ("error", "UnknownClass: unknown class in"),
    ]
    for failure, (status, sentence) in zip(failures[:5], expected, strict=True):
        assert failure is not None
        assert failure.status == status
        assert failure.message.startswith(sentence)
    assert failures[5] is None
    assert said[7].wall == pytest.approx([10.0] * 5)


@pytest.mark.usefixtures("machine_time")
def test_a_failure_in_a_block_and_a_command_too_many(module_file: Path) -> None:
    said = talk([row(module_file, "Tires"), row(module_file, "Good")], NEXT + BLOCK + NEXT + BLOCK + NEXT)
    assert said[2].failure is not None
    assert said[2].failure.message.startswith("RuntimeError: tired (blocks.py, line ")
    assert said[4].wall == pytest.approx([10.0] * 5)
    assert said[5].failure is not None


@pytest.mark.usefixtures("machine_time")
def test_a_side_ends_after_an_error_that_leaves_the_gpu_unusable(module_file: Path) -> None:
    said = talk([row(module_file, "LosesTheGpu"), row(module_file, "Good")], NEXT + NEXT + BLOCK)
    assert said[0] == READY
    (failure,) = (reply.failure for reply in said[1:])
    assert failure is not None
    assert failure.status == "crashed"
    assert failure.message.startswith("RuntimeError: CUDA error: an illegal memory access was encountered (blocks.py")


@pytest.mark.usefixtures("machine_time")
def test_the_gpu_cache_is_emptied_after_a_row_is_freed(module_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache that notes how many modules are alive when it is emptied."""
    alive: list[int] = []

    def empty_cache() -> None:
        alive.append(len(import_source(str(module_file)).alive))

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    rows = [row(module_file, "Good"), row(module_file, "Good", "train")]
    talk(rows, NEXT + BLOCK + NEXT)
    assert alive == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    talk(rows, NEXT + BLOCK + NEXT)
    assert alive == [0, 0]


@pytest.mark.usefixtures("machine_time")
def test_a_row_is_freed_before_the_next_is_made(module_file: Path) -> None:
    names = ["Good", "Raises", "NotANumber", "Tires", "Good"]
    talk([row(module_file, name) for name in names], NEXT + BLOCK + NEXT + NEXT + NEXT + BLOCK + NEXT + BLOCK)
    assert import_source(str(module_file)).others == [0] * len(names)


SLOWED = {
    (7, 0.0): (7, 7),
    (1, 0.1): (10, 11),
    (10, 0.1): (10, 11),
    (11, 0.1): (20, 22),
    (1, 0.3): (10, 13),
    (6, 0.2): (10, 12),
    (1, 0.07): (100, 107),
    (3, 1 / 3): (3, 4),
    (1, 1.5): (2, 5),
}


@pytest.mark.parametrize(("asked", "expected"), SLOWED.items())
def test_a_slowed_sample_runs_whole_passes_more_than_it_counts(
    asked: tuple[int, float], expected: tuple[int, int]
) -> None:
    assert pair.slowed(*asked) == expected


@pytest.mark.parametrize("percent", range(1, 100))
def test_every_whole_percent_is_injected_exactly(percent: int) -> None:
    counted, run = pair.slowed(3, percent / 100)
    assert (run - counted) * 100 == percent * counted


# The tree that a side works in

BLOCK_FILE = """
from torch import nn
import {helper}


class {name}(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv1d(1, {helper}.WIDTH, 1, bias=False)

    def forward(self, x):
        return x * self.layer.weight.sum()
"""


def write_tree(root: Path, width: int) -> None:
    """Three modules, in a file, in a package and in a package under src; each has `width` parameters."""
    files = {
        "flat_block.py": BLOCK_FILE.format(name="FlatFile", helper="flat_helper"),
        "flat_helper.py": f"WIDTH = {width}\n",
        "flat_package/__init__.py": "",
        "flat_package/block.py": BLOCK_FILE.format(name="FlatPackage", helper="flat_package.helper"),
        "flat_package/helper.py": f"WIDTH = {width}\n",
        "src/src_package/__init__.py": "",
        "src/src_package/block.py": BLOCK_FILE.format(name="SrcPackage", helper="src_package.helper"),
        "src/src_package/helper.py": f"WIDTH = {width}\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def params(root: Path, modules: list[str]) -> dict[str, int | None]:
    """Parameters by module, of what a fork server in this tree takes for them."""
    tree = Tree(root, "the tree")
    definition = {"title": "t", "modules": modules, "metrics": ["params"], "axes": {"shape": [1, 8, 4, 4]}}
    suite = Suite("t", Path("t.toml"), SuiteFile.model_validate(definition))
    with ForkServer(root) as server:
        found = list_cases(server, suite, "cpu", tree)
        count_exact(server, suite, found, found.cases)
    assert (found.missing, found.failures, found.own()) == ({}, {}, list(found.cases))
    return {found.cases[name].module: exact["params"] for name, exact in found.exact.items()}


def files_of(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


@pytest.mark.processes
def test_a_server_takes_modules_from_its_tree_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, installed, here = (tmp_path / name for name in ("tree", "installed", "here"))
    for root, width in ((tree, 3), (installed, 5), (here, 7)):
        write_tree(root, width)
    # What looks like the harness in a user's tree is not the harness.
    (tree / "ctxbench").mkdir()
    (tree / "ctxbench" / "__init__.py").write_text("raise RuntimeError('the tree has its own harness')\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", str(installed), str(installed / "src")]))
    before = files_of(tmp_path)
    found = params(tree, ["flat_block.py:FlatFile", "flat_package.block:FlatPackage", "src_package.block:SrcPackage"])
    assert found == {"FlatFile": 3, "FlatPackage": 3, "SrcPackage": 3}
    assert files_of(tmp_path) == before


@pytest.mark.processes
def test_a_source_tree_of_ctxbench_brings_its_modules_and_not_its_harness(tmp_path: Path) -> None:
    repository = Path(__file__).parents[3]
    shutil.copytree(repository / "modules", tmp_path / "modules", ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "modules" / "sa.py"
    text = changed.read_text()
    line = "        self.output = nn.Conv2d(width, channels, 1)\n"
    assert text.count(line) == 1
    changed.write_text(text.replace(line, line + "        self.extra = nn.Linear(1, 10, bias=False)\n"))
    (tmp_path / "ctxbench").mkdir()
    (tmp_path / "ctxbench" / "__init__.py").write_text("raise RuntimeError('the harness of another commit')\n")
    assert is_ctxbench(repository)
    before = files_of(tmp_path)
    # 4 C^2 + 4 C parameters at C = 8, and ten more; an unchanged module with 2 C^2 + 3 C.
    assert params(tmp_path, ["sa", "ham_nmf"]) == {"sa": 288 + 10, "ham_nmf": 152}
    assert files_of(tmp_path) == before


def test_a_tree_owns_its_files_but_not_those_of_an_environment_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    assert own_file(str(tmp_path / "block.py"), tmp_path)
    assert not own_file(str(tmp_path / ".venv" / "lib" / "block.py"), tmp_path)
    assert not own_file(str(tmp_path.parent / "block.py"), tmp_path)
    # A repository below the interpreter's prefix, such as /usr/src/app for a Python in /usr.
    monkeypatch.setattr("sys.prefix", str(tmp_path.parent))
    assert own_file(str(tmp_path / "block.py"), tmp_path)
