"""`ctxbench check --baseline` on run folders and pytest-benchmark's JSON that were really measured, and on scripts."""

import csv
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from test_gate_check import BEHAVIOUR, SUITE, Forked, processes_with
from test_gate_trees import OWN_GIT, commit, git, state, wait_until

import ctxbench
from ctxbench import api
from ctxbench.cli import main
from ctxbench.devices import Device
from ctxbench.engine import scheduler
from ctxbench.engine.client import Exit
from ctxbench.errors import UsageError
from ctxbench.gate import check_stored as checked
from ctxbench.gate.baseline import Baseline, RelativeLatency, load_baseline
from ctxbench.gate.check_stored import BLOCKS, LikePytest, LikeRun, check_stored
from ctxbench.gate.pairs import Source
from ctxbench.gate.request import Request
from ctxbench.gate.result import ExactChange, ExitCode, GateResult
from ctxbench.gate.rows import RowKey, RowVerdict
from ctxbench.gate.stored import ProcessFailure, ProcessResult
from ctxbench.gate.texts import label_of
from ctxbench.messages import Failure, Values
from ctxbench.metrics import control
from ctxbench.mode import MODES
from ctxbench.results import columns
from ctxbench.suite import Case, Measure, Overrides, load
from ctxbench.worker import tasks
from ctxbench.worker.pair import prepared
from ctxbench.worker.protocol import BLOCK, NEXT, Answer, MeasureCase, PairRow, Reply, TakeSide, Task

pytest_plugins = "pytester"

# Rows and the control workload sleep: what they take does not hang on who else computes.
SLEEP_S = 0.004
MODULES = {f"{name}.py": BEHAVIOUR.format(name=name, body=f"x.is_meta or time.sleep({SLEEP_S})") for name in ("A", "B")}
SHAPE = "1x16x8x8 float32 cpu 1threads"
MARGIN = 9.0
NAN = Answer(failure=Failure("nan", "x"))


def forked(tree: Path | None = None, timer: bool = False) -> Forked:
    return Forked(tree or Path.cwd())


def write_suite(folder: Path, modules: Sequence[str], metrics: Sequence[str]) -> Path:
    path = folder / "tiny.toml"
    text = SUITE.format(modules=json.dumps(modules)[1:-1], metrics=json.dumps(metrics)[1:-1], gate="")
    text = text.replace("[measure]", "threads = 1\n[measure]\nbudget_s = 0.06\ntimeout_s = 61")
    path.write_text(text)
    return path


def forget_modules() -> None:
    """Let the next fork load modules from their files anew."""
    for name in [name for name in sys.modules if name.startswith("ctxbench_file_")]:
        del sys.modules[name]


@pytest.fixture(scope="module", autouse=True)
def _no_fresh_interpreters() -> Iterator[None]:
    tasks.preload()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "ForkServer", forked)
        patch.setattr(checked, "ForkServer", forked)
        patch.setattr(scheduler, "matmul_rate", lambda *arguments: None)
        patch.setattr(Device, "control_workload", lambda device: partial(time.sleep, 0.004))
        patch.setattr(control, "BLOCK_S", 0.012)
        patch.setattr(sys, "dont_write_bytecode", True)
        for name, value in OWN_GIT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A repository with two modules, a run of them and a static one."""
    folder = tmp_path_factory.mktemp("measured")
    root = folder / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, dict(MODULES))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        suite = write_suite(folder, ["A.py:A", "B.py:B"], ["params", "macs", "memory", "latency"])
        for name, static in (("run", False), ("static", True)):
            assert ctxbench.run(str(suite), out=folder / name, static=static).failed == 0
    forget_modules()
    return {"root": root, "run": folder / "run", "static": folder / "static"}


@pytest.fixture
def root(measured: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The repository to change files in; afterwards it is as before."""
    monkeypatch.chdir(measured["root"])
    yield measured["root"]
    for file in measured["root"].glob("*.py"):
        file.unlink()
    for name, text in MODULES.items():
        (measured["root"] / name).write_text(text)


@pytest.fixture
def run(measured: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the run, with latencies as certain as on a quiet machine: what others computed is no subject here."""

    def narrow(record: dict[str, str]) -> dict[str, str]:
        for name in ("latency_infer", "latency_train", "control"):
            record[f"{name}_low_ms"], record[f"{name}_high_ms"] = (
                repr(float(record[f"{name}_ms"]) * factor) for factor in (0.99, 1.01)
            )
        return {**record, "latency_infer_confidence": "0.95", "latency_train_confidence": "0.95"}

    edit_records(folder := shutil.copytree(measured["run"], tmp_path / "run"), narrow)
    return folder


@dataclass
class Scripted:
    """Stands in for `LikeRun`: each row of a run takes this many times as long as it took then."""

    stored: Baseline
    factor: float
    seconds: list[float] = field(default_factory=list)

    def started(self, *arguments: Any, **options: Any) -> Self:
        return replace(self, seconds=[])

    def __call__(self, rows: Sequence[RowKey]) -> dict[RowKey, RelativeLatency]:
        self.seconds.append(0.0)
        found = {}
        for row in rows:
            latency = self.stored.row(row).latency
            assert latency is not None
            found[row] = replace(latency, row=latency.row + math.log(self.factor) + 0.001 * (-1) ** len(self.seconds))
        return found


@pytest.fixture
def times(run: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let each row of the run take so many times as long as it took then, on a script."""

    def use(factor: float) -> None:
        monkeypatch.setattr(checked, "LikeRun", Scripted(load_baseline(run), factor).started)

    return use


def ask(path: Path, *modules: str, suite: str = "ci", **options: Any) -> GateResult:
    chosen = load(suite, Overrides(modules=list(modules) or None))
    return check_stored(path, Request(chosen, **{"margin": MARGIN, **options}))


def write(root: Path, name: str, body: str) -> None:
    (root / f"{name}.py").write_text(BEHAVIOUR.format(name=name, body=body))


def edit_records(folder: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    path = folder / "records.csv"
    with path.open(newline="") as file:
        records = [change(record) for record in csv.DictReader(file)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)


def edit_meta(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "run.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))


def rows_of(result: GateResult) -> dict[str, RowVerdict]:
    return {label_of(result, row.row): row for row in result.rows}


def outcomes(result: GateResult) -> dict[str, str]:
    return {name: row.verdict or row.status for name, row in rows_of(result).items()}


# The same machine


@pytest.mark.processes
@pytest.mark.timing
def test_the_same_code_is_ok_and_is_measured_as_the_run_was(
    root: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []

    def note(self: Forked, task: Task, *arguments: Any) -> Exit:
        asked.append(task)
        return original(self, task, *arguments)

    original = Forked.run
    monkeypatch.setattr(Forked, "run", note)
    before = state(root)
    output = tmp_path / "result.json"
    options = ["--baseline", str(run), "--modules", "A.py:A", "--margin", "900%", "--json", str(output)]
    monkeypatch.setattr(sys, "argv", ["ctxbench", "check", *options])
    with pytest.raises(SystemExit) as stopped:
        main()
    result = json.loads(output.read_text())
    assert stopped.value.code == result["exit_code"] == ExitCode.OK
    assert (result["exact"], result["advisory"]) == ({"compared": 4, "changes": []}, False)
    assert result["candidate"] == "the working tree"
    assert [(row["label"], row["verdict"]) for row in result["rows"]] == [("A infer", "ok"), ("A train", "ok")]
    timed = [task for task in asked if isinstance(task, MeasureCase) and "latency" in task.metrics]
    # Once in each process, for both modes.
    assert len(timed) == max(row["replicates"] for row in result["rows"]) >= 4
    assert all(task.metrics == ["params", "macs", "memory", "latency"] for task in timed)
    stored = json.loads((run / "run.json").read_text())["definition"]["measure"]
    assert {task.measure.budget_s for task in timed} == {stored["budget_s"]} == {0.06}
    assert {task.measure.timeout_s for task in timed} == {61.0}
    assert state(root) == before


@pytest.mark.processes
@pytest.mark.timing
def test_five_times_the_work_is_a_regression(root: Path, run: Path) -> None:
    write(root, "A", f"x.is_meta or time.sleep({5 * SLEEP_S})")
    result = ask(run, "A.py:A", margin=0.3)
    assert result.exit_code == ExitCode.REGRESSED
    assert outcomes(result) == {"A infer": "regressed", "A train": "regressed"}
    assert all(0.3 < row.low < row.change < row.high for row in result.rows)
    assert (result.exact, result.compared) == ((), 4)


def test_a_grown_parameter_is_a_regression_with_both_numbers(root: Path, run: Path) -> None:
    text = MODULES["B.py"].replace("return x * self.weight", "return x * self.weight.sum()")
    (root / "B.py").write_text(text.replace("torch.ones(1)", "torch.ones(3)"))
    result = ask(run, budget_s=1e-9)  # no time for a clock
    assert ExactChange(f"B {SHAPE}", "params", 1, 3) in result.exact
    assert {change.case for change in result.exact} == {f"B {SHAPE}"}
    assert (result.compared, result.exit_code) == (8, ExitCode.REGRESSED)


@pytest.mark.parametrize("modules", [(), ("A.py:A", "B.py:B"), ("A.py:A",)])
def test_a_module_that_has_vanished_is_broken(root: Path, run: Path, modules: tuple[str, ...]) -> None:
    (root / "A.py").unlink()
    result = ask(run, *modules, budget_s=1e-9)
    row = rows_of(result)["A"]
    assert (row.status, result.exit_code) == ("broken", ExitCode.BROKEN)
    assert f"there is no file {root / 'A.py'}" in row.reason


def test_a_class_that_has_another_name_now_has_vanished(root: Path, run: Path) -> None:
    (root / "A.py").write_text(MODULES["A.py"].replace("class A", "class C"))
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A": "broken"}
    assert result.exit_code == ExitCode.BROKEN


def test_a_module_that_no_longer_loads_is_broken_even_where_the_baseline_had_failed_later(
    root: Path, run: Path
) -> None:
    edit_records(run, lambda record: {**record, "status": "oom", "latency_train_ms": ""})
    (root / "A.py").write_text("import no_such_package\n" + MODULES["A.py"])
    result = ask(run)
    assert outcomes(result) == {"A": "broken", "B": "not compared"}
    assert "A.py failed in its own code" in rows_of(result)["A"].reason
    assert rows_of(result)["B"].reason == "It ended in oom in the baseline."
    assert (result.compared, result.exit_code) == (4, ExitCode.BROKEN)


def test_where_all_had_failed_equal_costs_are_no_pass(root: Path, run: Path) -> None:
    edit_records(run, lambda record: {**record, "status": "oom", "latency_train_ms": ""})
    assert ask(run).exit_code == ExitCode.NOTHING_COMPARED


@pytest.mark.processes
@pytest.mark.timing
def test_a_new_crash_is_broken_and_leaves_the_other_module_its_verdict(root: Path, run: Path) -> None:
    write(root, "A", "x.is_meta or os.kill(os.getpid(), signal.SIGKILL)")
    result = ask(run)
    assert outcomes(result) == {"A infer": "broken", "A train": "broken", "B infer": "ok", "B train": "ok"}
    assert rows_of(result)["A train"].reason.startswith("crashed: killed in memory_infer by SIGKILL")
    assert result.exit_code == ExitCode.BROKEN


def test_a_module_that_the_baseline_lacks_is_not_compared(
    root: Path, run: Path, times: Callable[[float], None]
) -> None:
    times(1)
    write(root, "C", "pass")
    result = ask(run, "C.py:C")
    assert outcomes(result) == {"C": "not compared"}
    assert rows_of(result)["C"].reason == "It is not in the baseline."
    assert (result.compared, result.exit_code) == (0, ExitCode.NOTHING_COMPARED)
    result = ask(run, "C.py:C", "A.py:A")
    assert outcomes(result) == {"A infer": "ok", "A train": "ok", "C": "not compared"}
    assert result.exit_code == ExitCode.OK


def test_a_module_that_neither_has_is_a_wrong_argument(root: Path, run: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*/nowhere.py"):
        ask(run, "nowhere.py:A")
    with pytest.raises(UsageError, match="unknown module 'saa'; did you mean 'sa'"):
        ask(run, "A.py:A", "saa")


def test_another_copy_of_the_repository_measures_its_own_files_or_none(
    root: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    (copy / "A.py").write_text(MODULES["A.py"].replace("import torch\n", "import torch\nraise ValueError('mine')\n", 1))
    monkeypatch.chdir(copy)
    result = ask(run)
    assert outcomes(result) == {"A": "not compared", "B": "not compared"}
    reason = f"Its {root / 'A.py'}:A lies outside this repository; name it with --module path.py:Class."
    assert rows_of(result)["A"].reason == reason
    assert result.exit_code == ExitCode.NOTHING_COMPARED
    result = ask(run, "A.py:A")
    assert "mine" in rows_of(result)["A"].reason
    assert result.exit_code == ExitCode.BROKEN
    (copy / "A.py").unlink()
    assert ask(run, "A.py:A").exit_code == ExitCode.BROKEN


def test_a_budget_below_what_the_run_took_measures_nothing_and_says_so(root: Path, run: Path) -> None:
    edit_records(run, lambda record: {**record, "elapsed_s": "400"})
    result = ask(run, budget_s=500)
    assert {row.replicates for row in result.rows} == {0}
    assert (
        "the baseline took 800 s for these rows, and 4 processes or more are needed; give more --budget, or fewer "
        "--modules"
    ) in result.notes
    assert result.exit_code == ExitCode.NOTHING_COMPARED


# Another machine, or other measurements


def another_cpu(meta: dict[str, Any]) -> None:
    meta["environment"]["cpu"] = "another processor"


def another_torch(meta: dict[str, Any]) -> None:
    meta["environment"]["packages"]["torch"] = "1.13.0"


@pytest.mark.parametrize(
    ("change", "sentence", "compared"),
    [
        (another_cpu, "The baseline was measured elsewhere (cpu: another processor then, ", 4),
        (another_torch, "The baseline was measured elsewhere (torch: 1.13.0 then, ", 2),  # no predicted memory
        (None, "The baseline does not say on which machine it was measured: latencies are advisory.", 2),
    ],
)
def test_from_another_machine_a_slowdown_decides_nothing(
    root: Path,
    run: Path,
    times: Callable[[float], None],
    change: Callable[[dict[str, Any]], None] | None,
    sentence: str,
    compared: int,
) -> None:
    if change is None:
        (run / "run.json").unlink()
    else:
        edit_meta(run, change)
    times(5)
    result = ask(run / "records.csv", "A.py:A", margin=0.05)
    assert outcomes(result) == {"A infer": "regressed", "A train": "regressed"}
    assert [row.change for row in result.rows] == pytest.approx([4, 4])
    assert (result.advisory, result.exit_code, result.compared) == (True, ExitCode.OK, compared)
    assert any(note.startswith(sentence) for note in result.notes)


def test_from_another_machine_too_a_new_crash_is_broken(root: Path, run: Path) -> None:
    edit_meta(run, another_cpu)
    write(root, "A", "x.is_meta or os.kill(os.getpid(), signal.SIGKILL)")
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A infer": "broken", "A train": "broken"}
    assert (result.advisory, result.exit_code) == (True, ExitCode.BROKEN)


def test_a_run_without_the_control_workload_has_no_latency_to_compare(root: Path, run: Path) -> None:
    edit_records(run, lambda record: {name: value for name, value in record.items() if columns()[name].since < 2})
    edit_meta(run, lambda meta: meta.update(schema=1))
    (run / "timeline.csv").unlink()
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A infer": "not compared", "A train": "not compared"}
    sentence = "The baseline has no confidence interval of this row's latency relative to the control workload."
    assert {row.reason for row in result.rows} == {sentence}
    assert (result.exact, result.compared, result.exit_code) == ((), 4, ExitCode.NOTHING_COMPARED)


def test_a_gpu_s_rows_without_a_gpu_are_compared_exactly_and_not_broken(
    root: Path, run: Path, times: Callable[[float], None]
) -> None:
    edit_records(run, lambda record: {**record, "device": "cuda:1" if record["module"] == "A" else "cpu"})
    times(1)
    result = ask(run)
    assert outcomes(result) == {"B infer": "ok", "B train": "ok", "A": "not compared"}
    assert re.fullmatch(
        r"It was measured on cuda:1; torch (sees no GPU here|was built with CUDA \S+, but no driver answers)\.",
        rows_of(result)["A"].reason,
    )
    assert (result.exact, result.compared) == ((), 8)
    assert "driver" not in result.conditions
    result = ask(run, "A.py:A")
    assert (result.compared, result.exit_code) == (4, ExitCode.NOTHING_COMPARED)
    assert "driver" not in result.conditions


def test_a_static_run_is_compared_exactly_and_nothing_is_timed(root: Path, measured: dict[str, Path]) -> None:
    result = ask(measured["static"])
    assert (result.rows, result.exact, result.compared) == ((), (), 8)
    assert result.exit_code == ExitCode.OK
    write(root, "C", "pass")
    result = ask(measured["static"], "A.py:A", "C.py:C")
    assert outcomes(result) == {"C": "not compared"}
    assert (result.compared, result.exit_code) == (4, ExitCode.OK)
    assert ask(measured["static"], "C.py:C").exit_code == ExitCode.NOTHING_COMPARED


def test_a_suite_without_latency_compares_a_timed_run_exactly(
    root: Path, measured: dict[str, Path], tmp_path: Path
) -> None:
    result = ask(measured["run"], suite=str(write_suite(tmp_path, ["*"], ["params"])))
    assert (result.rows, result.compared, result.exit_code) == ((), 8, ExitCode.OK)


# pytest-benchmark

BENCHMARK = """
import pytest

@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a(mode, benchmark, ctxbench_case):
    case = ctxbench_case("A.py:A", shape=(1, 16, 8, 8), mode=mode)
    benchmark.extra_info.update(case.extra_info)
    benchmark.pedantic(case.step, rounds=40)
"""


@pytest.mark.processes
def test_the_json_of_pytest_benchmark_is_compared_exactly_and_timed(
    root: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pytester.path / "A.py").write_text(MODULES["A.py"])
    git(pytester.path, "init", "--quiet")
    pytester.makepyfile(BENCHMARK)
    pytester.runpytest_subprocess("--benchmark-json=out.json").assert_outcomes(passed=2)
    monkeypatch.chdir(pytester.path)
    without_noise(pytester.path / "out.json")
    stored = load_baseline(pytester.path / "out.json")
    infer = stored.row(RowKey(f"A {SHAPE}", "infer")).latency
    assert infer is not None
    control_ms = math.exp(infer.control)
    slower = blocks([control_ms] * BLOCKS, [20 * control_ms * math.exp(infer.row)] * BLOCKS)
    workers = [ScriptedWorker([slower, [NAN]]), *(ScriptedWorker([slower]) for _ in range(3))]
    waiting = iter(workers)
    monkeypatch.setattr(checked, "LikePytest", partial(LikePytest, launch=lambda tree: next(waiting)))
    result = ask(pytester.path / "out.json")
    rows = rows_of(result)
    assert (rows["A infer"].status, rows["A infer"].replicates) == ("measured", 4)
    assert rows["A infer"].change == pytest.approx(19)
    assert (rows["A train"].status, rows["A train"].reason) == ("broken", "nan: x")
    assert (result.exact, result.compared, result.exit_code) == ((), 4, ExitCode.BROKEN)
    # What the processes are asked for can be done.
    (task, *_) = workers[0].tasks
    assert isinstance(task, TakeSide)
    for prepare in prepared(task):
        block = prepare().block()
        assert (len(block.control), len(block.row)) == (3, 5)


def without_noise(path: Path) -> None:
    """Make every interval of pytest-benchmark's JSON a point: how noisy this machine was is not the point here."""
    content = json.loads(path.read_text())
    for benchmark in content["benchmarks"]:
        benchmark["stats"]["data"] = [benchmark["stats"]["median"]] * 10
        info = benchmark["extra_info"]
        info["control_low_ms"] = info["control_high_ms"] = info["control_ms"]
    path.write_text(json.dumps(content))


# What a process says of a row, from a script

CASE = Case("A", "A.py:A", {}, (1, 16, 8, 8))
INFER, TRAIN = ROWS = [RowKey(CASE.id, mode) for mode in MODES]


class ScriptedForkServer:
    """Answers each task with columns of a record, or with a failure."""

    def __init__(self, values: Mapping[str, float], failure: str | None = None) -> None:
        self.values, self.failure = values, failure
        self.tasks: list[Task] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float) -> Exit:
        self.tasks.append(task)
        on_message(Values(self.values))
        if self.failure:
            on_message(Failure("oom", self.failure))
        return Exit(0, 0, False, "")


def interval(name: str, ms: float, factor: float) -> dict[str, float]:
    return {f"{name}_ms": ms, f"{name}_low_ms": ms / factor, f"{name}_high_ms": ms * factor}


VALUES = {
    **interval("latency_infer", 6.0, 1.02),
    "latency_infer_confidence": 0.95,
    **interval("latency_train", 12.0, 1.02),
    "latency_train_confidence": 0.95,
    **interval("control", 3.0, 1.0),
}


def numbers(result: ProcessResult) -> tuple[float, float, float]:
    assert isinstance(result, RelativeLatency)
    return result.row, result.control, result.error


def like_run(monkeypatch: pytest.MonkeyPatch, server: ScriptedForkServer) -> LikeRun:
    monkeypatch.setattr(checked, "ForkServer", lambda *arguments, **options: server)
    return LikeRun(None, Measure(), ["memory", "latency"], {CASE.id: CASE})


def test_latencies_as_a_run_measures_them(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedForkServer(VALUES)
    process = like_run(monkeypatch, server)
    found = process(ROWS)
    error = math.log(1.02) / 1.959964  # the quantile of 95 %
    assert numbers(found[INFER]) == pytest.approx((math.log(2), math.log(3), error))
    assert numbers(found[TRAIN]) == pytest.approx((math.log(4), math.log(3), error))
    (task,) = server.tasks  # both modes at once
    assert isinstance(task, MeasureCase)
    assert task.metrics == ["memory", "latency"]
    assert set(process([TRAIN])) == {TRAIN}
    assert (len(server.tasks), len(process.seconds)) == (2, 2)


def test_a_case_that_fails_or_has_no_interval_fails_in_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = like_run(monkeypatch, ScriptedForkServer(VALUES, "too large"))(ROWS)
    assert found == dict.fromkeys(ROWS, ProcessFailure("oom: too large"))
    without = {name: value for name, value in VALUES.items() if not name.startswith("control")}
    found = like_run(monkeypatch, ScriptedForkServer(without))(ROWS)
    assert found == dict.fromkeys(ROWS, ProcessFailure("no interval of its latency could be measured"))


class ScriptedWorker(ScriptedForkServer):
    """Takes commands: plays the blocks of one row after the other; None is the end of the process."""

    def __init__(self, script: Sequence[Sequence[Answer | None]]) -> None:
        super().__init__({})
        self.script = iter(script)
        self.row: Iterator[Answer | None] = iter(())
        self.stopped = 0

    def start(self, task: Task) -> None:
        self.tasks.append(task)

    def command(self, command: bytes, timeout_s: float | None = None) -> Answer | Exit:
        if command == NEXT:
            self.row = iter(next(self.script))
        elif command == BLOCK:
            return next(self.row) or Exit(0, signal.SIGSEGV, False, "")
        return Answer()

    def stop(self) -> None:
        self.stopped += 1


def like_pytest(worker: ScriptedWorker) -> LikePytest:
    rows = {row: PairRow(CASE, mode) for row, mode in zip(ROWS, MODES, strict=True)}
    return LikePytest(Source(None, rows), Measure(), lambda tree: worker)


def blocks(control: Sequence[float], row: Sequence[float]) -> list[Answer]:
    return [Answer([c] * 3, [r] * 5) for c, r in zip(control, row, strict=True)]


def test_latencies_as_pytest_benchmark_measures_them() -> None:
    # The control counts where the row's blocks begin and end, the row everywhere.
    infer = blocks([2.0, 90.0, 90.0, 90.0, 90.0, 2.0], [6.0, 6.0, 6.0, 6.0, 80.0, 80.0])
    train = blocks([4.0, 4.0, 4.0, 4.0, 4.0, 4.0], [12.0] * BLOCKS)
    process = like_pytest(ScriptedWorker([infer, train]))
    found = process(ROWS)
    assert numbers(found[INFER]) == pytest.approx((math.log(3), math.log(2), 0))
    assert numbers(found[TRAIN]) == pytest.approx((math.log(3), math.log(4), 0))
    assert len(process.seconds) == 1


@pytest.mark.parametrize(
    ("reply", "reason"), [(NAN, "nan: x"), (None, "crashed: killed in the measurement by SIGSEGV")]
)
def test_a_row_that_fails_in_pytest_s_way_leaves_the_next_its_latency(reply: Answer | None, reason: str) -> None:
    worker = ScriptedWorker([[*blocks([2.0], [6.0]), reply], blocks([4.0] * BLOCKS, [12.0] * BLOCKS)])
    found = like_pytest(worker)(ROWS)
    failure = found[INFER]
    assert isinstance(failure, ProcessFailure)
    assert failure.message.startswith(reason)
    assert numbers(found[TRAIN]) == pytest.approx((math.log(3), math.log(4), 0))
    assert worker.stopped == len(worker.tasks) == (2 if reply is None else 1)


# Ctrl-C


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are listed in /proc")
def test_interrupted_in_the_middle_it_leaves_no_process(root: Path, run: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    write(root, "A", "x.is_meta or (open(os.environ['BEGUN'], 'w').close(), time.sleep(600))")
    before = state(root)
    process = subprocess.Popen(
        [sys.executable, "-m", "ctxbench", "check", "--baseline", str(run), "--modules", "A.py:A"],
        cwd=root,
        env={**os.environ, "BEGUN": str(begun)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(begun.exists)
    assert len(processes_with(str(begun))) == 3  # the command, a fork server and its child
    process.send_signal(signal.SIGINT)
    output, complaint = process.communicate()
    assert (process.returncode, output) == (130, "")
    assert complaint.endswith("interrupted: no verdict, and nothing is left behind\n")
    wait_until(lambda: not processes_with(str(begun)))
    assert state(root) == before
