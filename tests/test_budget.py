"""A budget for a whole suite on a clock of the test's own, how long a run is said to take, what is told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeExecutor, counted, timed

from ctxbench.base.clocks import Machine
from ctxbench.engine.estimate import process_s
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Plain, Quiet
from ctxbench.engine.rounds import MOST_PROCESSES, execute
from ctxbench.model.case import Case, Measure
from ctxbench.model.record import Record
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.protocol import MeasureCase

ROOT = Path(__file__).parents[1]
CASES = [Case(key, f"ctxbench.modules.{key}:X", {}, (1, 8, 4, 4)) for key in ("sa", "a2", "dm")]


class Clock(Machine):
    """Time passes only while a process runs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wall_s(self) -> float:
        return self.seconds


def run(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    costs: Mapping[str, float],
    widths: Mapping[str, float],
    reporter: Quiet | None = None,
    **measure: Any,
) -> tuple[dict[str, Record], float]:
    """Run with processes of so many seconds, whose times differ by so much; the records, and the seconds of all."""
    clock = Clock()
    monkeypatch.setattr("ctxbench.base.clocks.here", clock)
    made = dict.fromkeys(costs, 0)

    def answer(task: MeasureCase) -> Any:
        key = task.case.module
        if "latency" not in task.metrics:
            clock.seconds += 1
            return counted()
        clock.seconds += costs[key]
        made[key] += 1
        return timed(10 + widths[key] * (-1) ** made[key])

    script = FakeExecutor(answer)
    plan = Plan(Measure(processes=3, **measure), ["params", "latency"])
    records = execute(CASES, plan, script, script.launch, RunFolder.create(path, {}), reporter or Quiet())
    return {record.module: record for record in records}, clock.seconds


class Watched(Quiet):
    """Keeps what is said of the time that is left."""

    is_watched = True

    def __init__(self) -> None:
        self.left: list[float | None] = []

    def known(self, record: Record, left_s: float | None) -> None:
        self.left.append(left_s)


def test_what_is_left_follows_what_the_first_processes_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, costs = Watched(), dict.fromkeys(("sa", "a2", "dm"), 53)
    run(tmp_path / "run", monkeypatch, costs, dict.fromkeys(costs, 0), reporter)
    *_, before, first, second = reporter.left[:-7]
    assert before == pytest.approx(9 * 5.3, rel=0.01)  # 0.3 s to start, and 2.5 s for each mode
    assert first == pytest.approx(8 * 53)
    assert second == pytest.approx(7 * 53)
    assert reporter.left[-1] == 0


@pytest.mark.parametrize(("wide", "total_s", "processes"), [(3, 120, (3, 12, 3)), (0, 75, (2, 3, 3))])
def test_wide_rows_get_more_processes_the_cheapest_first_and_costly_ones_fewer_where_the_budget_does_not_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: float, total_s: float, processes: tuple[int, ...]
) -> None:
    costs, widths = {"sa": 30, "a2": 2, "dm": 1}, {"sa": wide, "a2": wide, "dm": 0}
    records, seconds = run(tmp_path / "run", monkeypatch, costs, widths, total_s=total_s)
    assert [records[key].processes for key in costs] == [*processes]
    assert (records["sa"].get("latency_infer_low_ms") is None) == (processes[0] < 3)
    assert seconds == 3 + sum(count * cost for count, cost in zip(processes, costs.values(), strict=True)) <= total_s


def test_a_budget_too_small_for_one_process_of_each_row_is_told_with_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    reporter = Quiet()
    monkeypatch.setattr(reporter, "note", told.append)
    costs = {"sa": 30, "a2": 2, "dm": 1}
    widths = dict.fromkeys(costs, 0)
    run(tmp_path / "enough", monkeypatch, costs, widths, reporter, total_s=40)
    assert told == []
    run(tmp_path / "short", monkeypatch, costs, widths, reporter, total_s=2.5)
    # Three processes of 1 s have counted. One that times takes 0.3 s and, for each mode, 0.5 s to warm up and 2 s.
    assert told == [
        "a budget of 2.5 s is too small for one process of each row: that takes about 19 s, and intervals take "
        "3 processes"
    ]


def test_each_row_has_one_process_at_least_and_so_many_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = dict.fromkeys(("sa", "a2", "dm"), 1)
    records, _ = run(tmp_path / "short", monkeypatch, costs, dict.fromkeys(costs, 3), total_s=0.5)
    assert [record.processes for record in records.values()] == [1, 1, 1]
    records, seconds = run(tmp_path / "long", monkeypatch, costs, dict.fromkeys(costs, 9), total_s=1000)
    assert [record.processes for record in records.values()] == [MOST_PROCESSES] * 3
    assert seconds == 3 + 3 * MOST_PROCESSES


def test_without_a_budget_the_planned_processes_are_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = dict.fromkeys(("sa", "a2", "dm"), 1)
    records, _ = run(tmp_path / "run", monkeypatch, costs, dict.fromkeys(costs, 9))
    assert [record.processes for record in records.values()] == [3, 3, 3]


@pytest.mark.parametrize("name", ["field", "crossover", "bread", "rank", "steps", "scaling", "spectrum", "table3"])
def test_the_estimate_of_a_committed_run_is_within_30_percent(name: str) -> None:
    folder = RunFolder.open(ROOT / "results" / f"{name}-cpu")
    measure = Measure.model_validate(folder.meta["definition"]["measure"])
    finished = folder.finished()
    taken = estimated = 0.0
    for processes in finished.values():
        once = processes[0]
        rate = once.get("matmul_macs_per_s")
        for number, record in processes.items():
            if number and rate and once.get("macs"):
                taken += record.elapsed_s or 0.0
                estimated += process_s(once, measure, rate)
    assert 0.7 < estimated / taken < 1.3


def test_what_is_counted_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = FakeExecutor(lambda task: timed(5.0) if "latency" in task.metrics else counted())
    plan = Plan(Measure(processes=3), ["params", "latency"])
    execute(CASES[:1], plan, script, script.launch, RunFolder.create(tmp_path / "run", {}), Plain())
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == f"{CASES[0].id}: Params 7"
    assert [line.partition(";")[0] for line in rest[:-1]] == [f"round {n} of fresh processes" for n in (1, 2, 3)]
    assert "s left" in rest[1]
    assert rest[-1].startswith(f"{CASES[0].id}: infer 5.000 ms, 3 processes")
