"""Rounds of processes on a scripted executor: their order, what is measured again, what a record is made from."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import FakeExecutor, counted, timed

from ctxbench.base import clocks as this_machine
from ctxbench.base import load as machine_load
from ctxbench.base.clocks import Machine
from ctxbench.base.statistics import t_interval
from ctxbench.engine.combined import combine
from ctxbench.engine.one_process import CaseOutcome, Plan, blank_record, measure_case
from ctxbench.engine.progress import Quiet
from ctxbench.engine.rounds import execute
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Failure, Values
from ctxbench.model.record import Record
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.protocol import MeasureCase, Reply

CASES = [Case(key, f"ctxbench.modules.{key}:X", {}, (1, 8, 4, 4)) for key in ("sa", "a2", "dm")]


class Script(FakeExecutor):
    """Executors of all rounds: `times(case, number)` gives the ms of process `number`, `load` what others kept busy."""

    def __init__(
        self,
        times: Callable[[str, int], float] = lambda module, number: 1.0,
        load: Callable[[str, int], float] = lambda module, number: 0.0,
        control: Callable[[str, int], float] = lambda module, number: 2.0,
        fails: tuple[str, int] | None = None,
        stops: tuple[str, int] | None = None,
        shares_gpu: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(self._answer)
        self.shares_gpu = shares_gpu
        self.times, self.load, self.control, self.fails, self.stops = times, load, control, fails, stops
        self.tasks: list[tuple[str, int, Sequence[str]]] = []

    def _answer(self, task: MeasureCase) -> Sequence[Reply]:
        module = task.case.module
        number = self.launched if "latency" in task.metrics else 0
        if self.stops == (module, number):
            raise KeyboardInterrupt
        self.tasks.append((module, number, task.metrics))
        if self.fails == (module, number):
            return [Failure("nan", "no number", "Traceback")]
        if not number:
            return counted()
        after = {"other_processes": [4242] if self.shares_gpu == (module, number) else []}
        state = Values({"machine_state": json.dumps({"before": {"other_processes": []}, "after": after})})
        control, load = self.control(module, number), self.load(module, number)
        return [*timed(self.times(module, number), control, load, outliers=1, drift=0.1 * number), state]


@pytest.fixture(autouse=True)
def _each_process_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.base.clocks.here", SimpleNamespace(wall_s=itertools.count().__next__))


def run(script: Script, path: Path, cases: Sequence[Case] = CASES, **measure: Any) -> dict[str, Record]:
    """Run in a folder, or go on in it; the records by their module."""
    folder = RunFolder.open(path) if (path / "run.json").exists() else RunFolder.create(path, {})
    plan = Plan(Measure(**measure), ["params", "latency"])
    return {record.module: record for record in execute(cases, plan, script, script.launch, folder, Quiet())}


def test_each_round_is_a_new_interpreter_and_another_order(tmp_path: Path) -> None:
    script = Script()
    records = run(script, tmp_path / "run")
    assert script.launched == 5
    assert [task for task in script.tasks if not task[1]] == [(key, 0, ["params"]) for key in ("sa", "a2", "dm")]
    rounds = [[module for module, number, _ in script.tasks if number == n] for n in range(1, 6)]
    assert [sorted(each) for each in rounds] == [["a2", "dm", "sa"]] * 5
    assert len({tuple(each) for each in rounds}) >= 3
    assert [*records] == ["sa", "a2", "dm"]
    assert records["a2"].get("params") == 7
    assert records["a2"].get("matmul_macs_per_s") == 5.0


def test_the_interval_is_students_on_the_logs_of_the_process_medians(tmp_path: Path) -> None:
    medians = [1.0, 1.1, 0.9, 1.3, 1.05]
    controls = [2.0, 2.1, 2.05, 2.0, 2.1]
    script = Script(lambda module, number: medians[number - 1], control=lambda module, number: controls[number - 1])
    record = run(script, tmp_path / "run")["sa"]
    low, high, _ = np.exp(t_interval(np.log(medians)))
    values = {name: record.get(f"latency_infer_{name}") for name in ("ms", "low_ms", "high_ms", "confidence")}
    assert values == {"ms": 1.05, "low_ms": pytest.approx(low), "high_ms": pytest.approx(high), "confidence": 0.95}
    frame = RunFolder.open(tmp_path / "run").frame().set_index("module")
    assert frame.loc["sa", "latency_infer_processes"] == dict(enumerate(medians, 1))
    assert record.get("latency_infer_spread_between") == pytest.approx(np.std(np.log(medians), ddof=1))
    assert (record.get("latency_infer_samples"), record.get("latency_infer_outliers"), record.processes) == (10, 5, 5)
    assert record.get("latency_infer_drift") == pytest.approx(0.3)
    assert frame.loc["sa", "control_processes"] == dict(enumerate(controls, 1))


@pytest.mark.parametrize("processes", [1, 2])
def test_too_few_processes_have_no_interval(tmp_path: Path, processes: int) -> None:
    record = run(Script(), tmp_path / "run", processes=processes)["sa"]
    assert (record.get("latency_infer_ms"), record.processes) == (1.0, processes)
    assert record.get("latency_infer_low_ms") is record.get("latency_infer_high_ms") is None
    assert record.get("latency_infer_confidence") == 0


def test_a_process_that_shared_its_gpu_is_measured_again_and_not_used(tmp_path: Path) -> None:
    script = Script(lambda module, number: 9.0 if (module, number) == ("a2", 4) else 1.0, shares_gpu=("a2", 4))
    records = run(script, tmp_path / "run")
    assert [number for module, number, _ in script.tasks if module == "a2"] == [0, 1, 2, 3, 4, 5, 6]
    assert records["a2"].rounds == "1 2 3 5 6"
    assert records["a2"].get("latency_infer_high_ms") == 1.0


def test_a_disturbed_process_is_measured_again_and_not_used(tmp_path: Path) -> None:
    script = Script(
        times=lambda module, number: 9.0 if (module, number) == ("sa", 2) else 1.0,
        load=lambda module, number: 0.9 if (module, number) == ("sa", 2) else 0.1,
    )
    records = run(script, tmp_path / "run")
    assert [task[:2] for task in script.tasks[18:]] == [("sa", 6)]
    frame = RunFolder.open(tmp_path / "run").frame().set_index("module")
    assert frame.loc["sa", "latency_infer_processes"] == dict.fromkeys((1, 3, 4, 5, 6), 1.0)
    assert (records["sa"].processes, records["sa"].others_share) == (5, 0.1)
    assert RunFolder.open(tmp_path / "run").finished()[CASES[0].id][2].get("latency_infer_ms") == 9.0


def test_a_process_with_a_slow_control_workload_is_measured_again(tmp_path: Path) -> None:
    slow = {("sa", 2): 2.17, ("sa", 4): 2.15}  # 1.085 and 1.075 times the usual 2.0
    script = Script(control=lambda module, number: slow.get((module, number), 2.0))
    record = run(script, tmp_path / "run")["sa"]
    assert [task[:2] for task in script.tasks[18:]] == [("sa", 6)]
    assert record.rounds == "1 3 4 5 6"


def test_the_control_workload_is_compared_under_the_same_device_dtype_and_threads(tmp_path: Path) -> None:
    half = [replace(case, dtype="bfloat16", module=f"{case.module}-half") for case in CASES]
    script = Script(control=lambda module, number: 9.0 if module.endswith("-half") else 2.0)
    run(script, tmp_path / "run", [*CASES, *half])
    assert script.launched == 5


def test_load_alone_decides_and_a_slow_process_at_rest_stays(tmp_path: Path) -> None:
    script = Script(times=lambda module, number: 9.0 if number == 2 else 1.0)
    record = run(script, tmp_path / "run")["sa"]
    assert (script.launched, record.processes) == (5, 5)
    assert record.get("latency_infer_high_ms") > 5


@pytest.mark.parametrize(
    ("load", "planned", "launched", "processes"),
    [
        (lambda module, number: 1.0, 5, 5, (5, 5, 5)),  # a machine that is never at rest: nothing is measured again
        # rounds in vain end after three; the other cases are complete after round 8
        (lambda module, number: 1.0 if module == "sa" or number < 2 else 0.0, 7, 11, (11, 7, 7)),
        # as often as were planned at most
        (lambda module, number: 1.0 if module == "sa" and number % 3 else 0.0, 4, 8, (8, 4, 4)),
    ],
)
def test_rounds_are_repeated_while_that_helps(
    tmp_path: Path, load: Callable[[str, int], float], planned: int, launched: int, processes: tuple[int, ...]
) -> None:
    script = Script(load=load)
    records = run(script, tmp_path / "run", processes=planned)
    assert script.launched == launched
    assert tuple(records[key].processes for key in ("sa", "a2", "dm")) == processes
    assert planned != 5 or records["sa"].others_share == 1.0


def test_a_case_that_fails_in_its_third_process_only(tmp_path: Path) -> None:
    script = Script(fails=("a2", 3))
    record = run(script, tmp_path / "run")["a2"]
    assert (record.status, record.message) == ("nan", "in process 3 of 5: no number")
    assert (record.get("params"), record.get("latency_infer_ms")) == (7, 1.0)
    assert [number for module, number, _ in script.tasks if module == "a2"] == [0, 1, 2, 3]


def test_a_case_that_fails_before_it_is_timed_takes_part_in_no_round(tmp_path: Path) -> None:
    script = Script(fails=("a2", 0))
    record = run(script, tmp_path / "run")["a2"]
    assert (record.status, record.message, record.processes) == ("nan", "no number", None)
    assert len(script.tasks) == 3 + 2 * 5


@pytest.mark.parametrize("number", range(6))
def test_a_stop_in_any_round_loses_no_finished_process(tmp_path: Path, number: int) -> None:
    path = tmp_path / "run"
    first = Script(stops=("dm", number), times=lambda module, n: float(n))
    with pytest.raises(KeyboardInterrupt):
        run(first, path)
    assert RunFolder.open(path).frame()["params"].tolist() == [7.0] * (3 if number else 2)
    second = Script(times=lambda module, n: float(max(number, 1) + n - 1))
    run(second, path)
    done = [(module, n) for module, n, _ in first.tasks]
    missing = [(module, max(number, 1) + n - 1 if n else 0) for module, n, _ in second.tasks]
    assert sorted(done + missing) == sorted((case.module, n) for case in CASES for n in range(6))
    frame = RunFolder.open(path).frame().set_index("module")
    assert frame.loc["dm", "latency_infer_processes"] == {n: float(n) for n in range(1, 6)}


def test_without_a_metric_of_several_processes_there_is_no_round(tmp_path: Path) -> None:
    script = Script()
    folder = RunFolder.create(tmp_path / "run", {})
    execute(CASES, Plan(Measure(), ["params"]), script, script.launch, folder, Quiet())
    assert (script.launched, len(script.tasks)) == (0, 3)
    assert folder.frame()["params"].tolist() == [7, 7, 7]


class Notes(Quiet):
    """Writes down what a run reports."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int, str, int]] = []
        self.ended: list[str] = []

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        self.begun.append((index, total, case.module, number))

    def done(self, record: Record) -> None:
        self.ended.append(record.module)


def test_a_reporter_hears_of_each_process_and_of_each_case_once(tmp_path: Path) -> None:
    script, notes = Script(fails=("dm", 0)), Notes()
    folder = RunFolder.create(tmp_path / "run", {})
    execute(CASES, Plan(Measure(processes=2), ["params", "latency"]), script, script.launch, folder, notes)
    assert [(index, total) for index, total, _, _ in notes.begun] == [(index, 9) for index in range(7)]
    assert [(module, number) for _, _, module, number in notes.begun] == [task[:2] for task in script.tasks]
    assert notes.ended == ["dm", "sa", "a2"]


def test_more_processes_than_were_planned_raise_the_total(tmp_path: Path) -> None:
    script, notes = Script(load=lambda module, number: 0.9 if number == 1 and module == "sa" else 0.0), Notes()
    folder = RunFolder.create(tmp_path / "run", {})
    execute(CASES[:1], Plan(Measure(processes=3), ["params", "latency"]), script, script.launch, folder, notes)
    assert [(index, total) for index, total, _, _ in notes.begun] == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 5)]


def test_a_case_that_was_reused_is_not_timed_again(tmp_path: Path) -> None:
    script = Script()
    folder = RunFolder.create(tmp_path / "run", {"reused": {"cases": [CASES[0].id]}})
    execute(CASES, Plan(Measure(processes=2), ["params", "latency"]), script, script.launch, folder, Quiet())
    assert [task[:2] for task in script.tasks if task[0] == "sa"] == [("sa", 0)]


@pytest.mark.parametrize(("again_s", "extra"), [(0.26, 1), (0.24, 2)])
def test_rounds_that_measure_again_take_a_quarter_of_the_planned_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again_s: float, extra: int
) -> None:
    """The planned processes of three cases take 1 s together; those that are measured again `again_s` each."""
    script = Script(load=lambda module, number: 1.0 if module == "sa" and number != 4 else 0.0)

    def takes(case: Case, plan: Plan, executor: Script, reporter: Quiet) -> CaseOutcome:
        outcome = measure_case(case, plan, executor, reporter)
        number = script.tasks[-1][1]
        outcome.record.elapsed_s = 0.0 if not number else 1 / 12 if number <= 4 else again_s
        return outcome

    monkeypatch.setattr("ctxbench.engine.together.measure_case", takes)
    run(script, tmp_path / "run", processes=4)
    assert script.launched == 4 + extra


@pytest.mark.parametrize(("processes", "disturbed", "used"), [(5, 2, 3), (5, 3, 5), (2, 1, 2), (3, 1, 3)])
def test_three_processes_at_rest_are_enough(processes: int, disturbed: int, used: int) -> None:
    finished = {0: record_of(None), **{n: record_of(float(n)) for n in range(1, processes + 1)}}
    found = combine(finished, processes, range(disturbed + 1, processes + 1))
    assert found.processes == used
    assert found.rounds.split() == [str(n) for n in range(processes - used + 1, processes + 1)]


def test_the_time_of_compilation_is_that_of_the_process_that_compiled() -> None:
    finished = {0: record_of(None), **{n: record_of(float(n)) for n in range(1, 5)}}
    finished[1].take({"compile_infer_s": 9.0})
    found = combine(finished, 4, [2, 3, 4])
    assert (found.rounds, found.get("compile_infer_s")) == ("2 3 4", 9.0)


def record_of(ms: float | None) -> Record:
    """The record of one process; without a time, that of process 0."""
    record = blank_record(CASES[0])
    record.elapsed_s = 0.5
    if ms is not None:
        values = {"ms": ms, "samples": 2, "stop": "interval", "outliers": 0, "drift": 0.0}
        record.take({f"latency_infer_{name}": value for name, value in values.items()})
    return record


def test_a_failed_first_process_of_the_rounds_needs_no_number() -> None:
    failed = record_of(None)
    failed.status, failed.message = "nan", "no number"
    for number, message in ((1, "no number"), (2, "in process 2 of 5: no number")):
        earlier = {n: record_of(1.0) for n in range(1, number)}
        found = combine({0: record_of(None), **earlier, number: failed}, 5, [])
        assert (found.status, found.message) == ("nan", message)
        assert found.elapsed_s == 0.5 * (number + 1)
        assert found.others_share == 0.0


def test_what_others_use_is_the_machine_s_time_without_this_process_s(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, own, clock = iter([100.0, 103.0]), iter([10.0, 11.5]), iter([5.0, 7.0])
    monkeypatch.setattr(this_machine, "_machine_s", lambda: next(machine))
    monkeypatch.setattr(this_machine, "_own_s", lambda: next(own))
    monkeypatch.setattr(this_machine, "usable_cores", lambda: [0, 1])
    monkeypatch.setattr("ctxbench.base.clocks.monotonic", lambda: next(clock))
    assert Machine().others()() == 0.375  # 3 s of two cores, 1.5 s of them our own, in 2 s
    assert [machine_load.disturbed(cores) for cores in (None, 0.1, 0.11)] == [False, False, True]


def test_a_thread_that_waits_for_a_core_is_not_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, own = iter([5.0, 7.0]), iter([1.0, 1.5])
    monkeypatch.setattr("ctxbench.base.clocks.monotonic", lambda: next(clock))
    monkeypatch.setattr("ctxbench.base.clocks.thread_time", lambda: next(own))
    assert Machine().on_core()() == 0.25  # half a second of two
    assert [machine_load.starved(*each) for each in ((0.1, 0.9), (0.11, 1.0), (0.0, 0.89))] == [False, True, True]


def test_processes_that_this_one_started_are_no_others() -> None:
    before = this_machine._own_s()
    code = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while this_machine._own_s() - before < 0.2 and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None  # counted while it still runs
        process.kill()
