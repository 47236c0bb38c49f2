"""`ctxbench check --baseline` on run folders that were really measured, and on scripts."""

import csv
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from test_gate_check import BEHAVIOUR, SUITE
from test_trees import OWN_GIT, new_repository, state

import ctxbench
from ctxbench.base.errors import UsageError
from ctxbench.base.mode import MODES
from ctxbench.base.notes import Note
from ctxbench.cli import main
from ctxbench.engine import rounds
from ctxbench.engine.exit import Exit
from ctxbench.engine.one_process import Plan, blank_record
from ctxbench.engine.progress import Quiet
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure
from ctxbench.model.read_suite import Overrides, load
from ctxbench.model.record import Record
from ctxbench.plugins.check import check_stored as checked
from ctxbench.plugins.check.baseline import Baseline
from ctxbench.plugins.check.check_stored import check_stored
from ctxbench.plugins.check.request import Request
from ctxbench.plugins.check.result import ExactChange, ExitCode, GateResult
from ctxbench.plugins.check.rows import RowVerdict
from ctxbench.plugins.check.texts import headline, label_of
from ctxbench.plugins.trees.trees import modules_here
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.protocol import MeasureCase, Task

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

pytest_plugins = "pytester"

# Rows and the control workload sleep: what they take does not hang on who else computes.
SLEEP_S = 0.004
MODULES = {f"{name}.py": BEHAVIOUR.format(name=name, body=f"x.is_meta or time.sleep({SLEEP_S})") for name in ("A", "B")}
SHAPE = "1x16x8x8 float32 cpu 1threads"
MARGIN = 9.0
# Medians in ms of the processes of a quiet machine.
QUIET = {"1": 4.0, "2": 4.04, "3": 3.96}
CONTROL_MS = 3.0


def write_suite(folder: Path, modules: Sequence[str], metrics: Sequence[str]) -> Path:
    path = folder / "tiny.toml"
    text = SUITE.format(modules=json.dumps(modules)[1:-1], metrics=json.dumps(metrics)[1:-1], gate="")
    text = text.replace("[measure]", "threads = 1\n[measure]\nprocesses = 3\nsample_s = 0.06\ntimeout_s = 61")
    path.write_text(text)
    return path


def forget_modules() -> None:
    """Let the next fork load modules from their files anew."""
    for name in [name for name in sys.modules if name.startswith("ctxbench_file_")]:
        del sys.modules[name]


@pytest.fixture(scope="module", autouse=True)
def _no_fresh_interpreters() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctxbench.engine.run.ForkServer", Forked)
        patch.setattr(checked, "ForkServer", Forked)
        patch.setattr(rounds, "matmul_rate", lambda *arguments: None)
        patch.setattr(sys, "dont_write_bytecode", True)
        for name, value in OWN_GIT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A repository with two modules, a run of them and a static one."""
    folder = tmp_path_factory.mktemp("measured")
    root = new_repository(folder / "repository", dict(MODULES))
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
    forget_modules()
    for file in measured["root"].glob("*.py"):
        file.unlink()
    for name, text in MODULES.items():
        (measured["root"] / name).write_text(text)


@pytest.fixture
def run(measured: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the run, with the latencies of a quiet machine: what others computed is no subject here."""

    def quiet(record: dict[str, str]) -> dict[str, str]:
        return {**record, "rounds": " ".join(QUIET), "others_share": "0.0"}

    def still(process: dict[str, str]) -> dict[str, str]:
        if process["process"] not in QUIET:
            return process
        latencies = {f"latency_{mode}_ms": str(QUIET[process["process"]]) for mode in MODES}
        return {**process, **latencies, "control_ms": str(CONTROL_MS)}

    edit_records(folder := shutil.copytree(measured["run"], tmp_path / "run"), quiet)
    edit_records(folder, still, "processes.csv")
    return folder


class Played:
    """Stands in for `execute`: each pass takes `factor` times as long as on a quiet machine, or cases end as told."""

    def __init__(self, factor: float, status: str = "ok", message: str = "", *notes: Note) -> None:
        self.factor, self.status, self.message, self.notes = factor, status, message, notes
        self.plans: list[Plan] = []

    def __call__(
        self, cases: Sequence[Case], plan: Plan, executor: object, launch: object, folder: RunFolder, shown: object
    ) -> None:
        self.plans.append(plan)
        for case in cases:
            for number, ms in QUIET.items():
                process = blank_record(case)
                process.take({f"latency_{mode}_ms": ms * self.factor for mode in MODES} | {"control_ms": CONTROL_MS})
                folder.append(int(number), process, {})
        folder.write_records([self.record(case) for case in cases])

    def record(self, case: Case) -> Record:
        record = blank_record(case)
        record.rounds = " ".join(QUIET)
        record.note(*self.notes)
        record.status, record.message, record.others_share = self.status, self.message, 0.0
        return record


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Played]:
    """Let what is measured now come from a script: see `Played`."""

    def use(*arguments: Any) -> Played:
        monkeypatch.setattr(checked, "execute", played := Played(*arguments))
        return played

    return use


def ask(path: Path, *modules: str, suite: str = "ci", **options: Any) -> GateResult:
    chosen = load(suite, Overrides(modules=list(modules) or None))
    return check_stored(path, Request(chosen, **{"margin": MARGIN, **options}))


def write(root: Path, name: str, body: str) -> None:
    (root / f"{name}.py").write_text(BEHAVIOUR.format(name=name, body=body))


def edit_records(folder: Path, change: Callable[[dict[str, str]], dict[str, str]], name: str = "records.csv") -> None:
    path = folder / name
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


@pytest.mark.at_rest
def test_the_same_code_is_ok_and_is_measured_as_the_run_was(
    root: Path, measured: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []

    def note(self: Forked, task: Task, *arguments: Any) -> Exit:
        asked.append(task)
        return original(self, task, *arguments)

    original = Forked.run
    monkeypatch.setattr(Forked, "run", note)
    before = state(root)
    output = tmp_path / "result.json"
    options = ["--baseline", str(measured["run"]), "--modules", "A.py:A", "--json", str(output)]
    monkeypatch.setattr(sys, "argv", ["ctxbench", "check", *options])
    with pytest.raises(SystemExit) as stopped:
        main()
    result = json.loads(output.read_text())
    assert stopped.value.code == result["exit_code"] == ExitCode.OK
    assert (result["exact"], result["advisory"]) == ({"compared": 5, "changes": []}, False)
    assert result["candidate"] == "the working tree"
    assert [(row["label"], row["verdict"]) for row in result["rows"]] == [("A infer", "ok"), ("A train", "ok")]
    assert [row["replicates"] for row in result["rows"]] == [3, 3]
    measuring = [task for task in asked if isinstance(task, MeasureCase) and task.case.device == "cpu"]
    assert [task.metrics for task in measuring] == [[], *[["latency"]] * (len(measuring) - 1)]
    assert {(task.measure.sample_s, task.measure.timeout_s) for task in measuring} == {(0.06, 61.0)}
    assert state(root) == before


def test_what_runs_is_the_latency_with_the_baseline_s_own_settings(
    root: Path, run: Path, times: Callable[..., Played]
) -> None:
    played = times(1)
    ask(run, "A.py:A")
    (plan,) = played.plans
    assert (plan.measure.processes, plan.measure.sample_s, plan.force) == (3, 0.06, True)
    assert plan.metrics == ["latency"]
    (run / "run.json").unlink()
    ask(run / "records.csv", "A.py:A")
    suite = load("ci").file
    assert played.plans[1].measure == suite.measure


@pytest.mark.parametrize(
    ("environment", "malloc"), [({"malloc": {}}, "default"), ({"malloc": {"MALLOC_X": "1"}}, "keep"), (None, "keep")]
)
def test_the_allocator_is_the_one_that_a_baseline_without_settings_tells_of(
    environment: dict[str, Any] | None, malloc: str, root: Path
) -> None:
    check = checked._StoredCheck(Request(load("ci")), modules_here(), Baseline("earlier", environment, {}, {}))
    assert check.measure == check.suite.file.measure.model_copy(update={"malloc": malloc})


def test_five_times_the_work_is_a_regression(root: Path, run: Path, times: Callable[..., Played]) -> None:
    times(5)
    result = ask(run, "A.py:A", margin=0.3)
    assert result.exit_code == ExitCode.REGRESSED
    assert outcomes(result) == {"A infer": "regressed", "A train": "regressed"}
    assert [row.change.value for row in result.rows] == pytest.approx([4, 4])
    assert all(0.3 < row.change.low < row.change.value < row.change.high for row in result.rows)
    assert ([row.replicates for row in result.rows], result.evidence) == ([3, 3], "process")
    assert (result.exact, result.compared) == ((), 5)


def test_a_baseline_that_other_work_disturbed_decides_nothing(
    root: Path, run: Path, times: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(5)
    edit_records(run, lambda record: {**record, "others_share": "0.7" if record["module"] == "A" else "0.1"})
    result = ask(run, margin=0.3)
    found = dict.fromkeys(("A infer", "A train"), "inconclusive") | dict.fromkeys(("B infer", "B train"), "regressed")
    assert outcomes(result) == found
    assert rows_of(result)["A infer"].reason == "Other work kept more than 10% of the cores busy in the baseline."


def test_rounds_are_shown_as_those_of_a_gate() -> None:
    class Shown(Quiet):
        def __init__(self) -> None:
            self.said: list[Any] = []

        def stage(self, text: str) -> None:
            self.said.append(text)

        def row(self, *shown: Any) -> None:
            self.said.append(shown)

    shown = Shown()
    reporter: Quiet = checked._Rounds(shown, 2)
    a, b = (Case(name, "", {}, (1, 1, 1, 1)) for name in "ab")
    for index, (number, case) in enumerate([(0, a), (0, b), (1, b), (1, a), (2, a), (2, b)]):
        reporter.process(index, 6, case, number)
    assert shown.said == [
        *(f"measuring what needs one process: {case.id}" for case in (a, b)),
        *((0, 0, 2, b.id), (0, 1, 2, a.id), (1, 0, 2, a.id), (1, 1, 2, b.id)),
    ]


def test_a_grown_parameter_is_a_regression_with_both_numbers(root: Path, run: Path) -> None:
    text = MODULES["B.py"].replace("return x * self.weight", "return x * self.weight.sum()")
    (root / "B.py").write_text(text.replace("torch.ones(1)", "torch.ones(3)"))
    result = ask(run, budget_s=1e-9)  # no time for a clock
    assert ExactChange(f"B {SHAPE}", "params", 1, 3) in result.exact
    assert {change.case for change in result.exact} == {f"B {SHAPE}"}
    assert (result.compared, result.exit_code) == (10, ExitCode.REGRESSED)


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


def test_where_all_had_failed_equal_costs_are_no_pass_and_a_module_that_no_longer_loads_is_broken(
    root: Path, run: Path
) -> None:
    edit_records(run, lambda record: {**record, "status": "oom", "latency_train_ms": ""})
    assert ask(run).exit_code == ExitCode.NOTHING_COMPARED
    (root / "A.py").write_text("import no_such_package\n" + MODULES["A.py"])
    result = ask(run)
    assert outcomes(result) == {"A": "broken", "B": "not compared"}
    assert "A.py failed inside its code" in rows_of(result)["A"].reason
    assert rows_of(result)["B"].reason == "It ended in oom in the baseline."
    assert (result.compared, result.exit_code) == (5, ExitCode.BROKEN)


@pytest.mark.processes
def test_a_new_crash_is_broken_and_leaves_the_other_module_its_verdict(root: Path, run: Path) -> None:
    write(root, "A", "x.is_meta or os.kill(os.getpid(), signal.SIGKILL)")
    # Only a process in the tree finds what a module imports from there.
    (root / "beside.py").write_text("")
    (root / "B.py").write_text("import beside\n" + MODULES["B.py"])
    result = ask(run)
    rows = rows_of(result)
    found = [rows[name].status for name in ("A infer", "A train", "B infer", "B train")]
    assert found == ["broken", "broken", "measured", "measured"]
    assert rows["A train"].reason.startswith("crashed: killed in first_infer by SIGKILL")
    assert rows["B train"].replicates >= 3  # more where the machine was slow meanwhile
    assert result.exit_code == ExitCode.BROKEN


def test_a_gpu_without_room_now_is_inconclusive(root: Path, run: Path, times: Callable[..., Played]) -> None:
    message = "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB."
    times(1, "oom", message, Note("no_gpu_room"))
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A infer": "inconclusive", "A train": "inconclusive"}
    assert rows_of(result)["A infer"].reason.endswith(f"one of the two sides only: oom: {message}")
    assert result.exit_code == ExitCode.NOTHING_COMPARED
    times(1, "oom", "out of memory: DefaultCPUAllocator")
    assert ask(run, "A.py:A").exit_code == ExitCode.BROKEN


def test_a_case_that_is_stopped_at_a_time_limit_now_is_inconclusive(
    root: Path, run: Path, times: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "still in latency_infer after 60 s"
    times(1, "timeout", message)
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A infer": "inconclusive", "A train": "inconclusive"}
    told = "It was stopped at a time limit, which other work on the machine can cause: timeout:"
    assert rows_of(result)["A infer"].reason == f"{told} {message}"
    monkeypatch.setattr(checked, "measured", lambda *arguments: Failure("timeout", "still in macs after 60 s"))
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A": "inconclusive"}
    assert rows_of(result)["A"].reason == f"{told} still in macs after 60 s"


def test_a_module_that_the_baseline_lacks_is_not_compared(root: Path, run: Path, times: Callable[..., Played]) -> None:
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


@pytest.mark.at_rest
def test_another_copy_of_the_repository_measures_its_own_files_or_none(
    root: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    (copy / "A.py").write_text(MODULES["A.py"].replace("import torch\n", "import torch\nraise ValueError('mine')\n", 1))
    monkeypatch.chdir(copy)
    result = ask(run)
    assert outcomes(result) == {"A": "broken", "B infer": "ok", "B train": "ok"}
    assert "mine" in rows_of(result)["A"].reason
    result = ask(run, "A.py:A")
    assert "mine" in rows_of(result)["A"].reason
    assert result.exit_code == ExitCode.BROKEN
    (copy / "A.py").unlink()
    assert ask(run, "A.py:A").exit_code == ExitCode.BROKEN
    edit_records(run, lambda record: {**record, "reference": f"{root / record['reference']}"})
    with pytest.raises(UsageError, match=rf"not below the working folder: {root / 'A.py'}, .*add --run-its-code"):
        ask(run)


def test_a_budget_below_what_the_run_took_measures_nothing_and_says_so(root: Path, run: Path) -> None:
    edit_records(run, lambda record: {**record, "elapsed_s": "400"})
    result = ask(run, budget_s=500)
    assert {row.replicates for row in result.rows} == {0}
    assert (
        "the baseline took 800 s for these rows, and as much is needed now; give more --budget, or fewer --modules"
    ) in result.notes
    assert result.exit_code == ExitCode.NOTHING_COMPARED


def another_cpu(meta: dict[str, Any]) -> None:
    meta["environment"]["cpu"] = "another processor"


def another_torch(meta: dict[str, Any]) -> None:
    meta["environment"]["packages"]["torch"] = "1.13.0"


@pytest.mark.parametrize(
    ("change", "sentence", "compared"),
    [
        (another_cpu, "The baseline was measured elsewhere (cpu: another processor then, ", 5),
        (another_torch, "The baseline was measured elsewhere (torch: 1.13.0 then, ", 2),  # no predicted memory
        (None, "The baseline does not say on which machine it was measured: latencies are advisory.", 2),
    ],
)
def test_from_another_machine_a_slowdown_decides_nothing(
    root: Path,
    run: Path,
    times: Callable[..., Played],
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
    assert [row.change.value for row in result.rows] == pytest.approx([4, 4])
    assert (result.advisory, result.exit_code, result.compared) == (True, ExitCode.OK, compared)
    assert any(note.startswith(sentence) for note in result.notes)


def test_from_another_machine_too_a_new_crash_is_broken(root: Path, run: Path, times: Callable[..., Played]) -> None:
    edit_meta(run, another_cpu)
    times(1, "crashed", "killed in latency_infer by SIGKILL")
    result = ask(run, "A.py:A")
    assert outcomes(result) == {"A infer": "broken", "A train": "broken"}
    assert (result.advisory, result.exit_code) == (True, ExitCode.BROKEN)


NO_LATENCY = "no latency was compared, so nothing says whether a module is slower"


def assert_only_exact(result: GateResult, compared: int, count: str = "one process") -> None:
    """Equal costs are a pass that does not look like one of the latency."""
    assert set(outcomes(result).values()) == {"not compared"}
    sentence = f"The baseline's latency is of {count}; `ctxbench run` measures a baseline in several."
    assert {row.reason for row in result.rows} == {sentence}
    assert any(note.startswith(NO_LATENCY) for note in result.notes)
    assert headline(result) == "no exact quantity is worse, no latency was compared"
    assert (result.exact, result.compared, result.exit_code) == ((), compared, ExitCode.OK)


def test_a_run_that_lacks_a_column_is_compared_in_the_others(root: Path, run: Path) -> None:
    edit_records(run, lambda record: {name: cell for name, cell in record.items() if name != "macs_train"})
    (run / "processes.csv").unlink()
    assert_only_exact(ask(run, "A.py:A"), 4)


@pytest.mark.parametrize(("few", "count"), [("1", "one process"), ("1 3", "2 processes")])
def test_a_run_of_one_or_two_processes_is_compared_exactly(root: Path, run: Path, few: str, count: str) -> None:
    edit_records(run, lambda record: {**record, "rounds": few})
    assert_only_exact(ask(run, "A.py:A"), 5, count)


def test_where_one_module_has_enough_processes_its_rows_decide(
    root: Path, run: Path, times: Callable[..., Played]
) -> None:
    edit_records(run, lambda each: each if each["module"] == "A" else {**each, "control_ms": ""}, "processes.csv")
    times(1)
    result = ask(run)
    assert outcomes(result) == {
        **dict.fromkeys(("A infer", "A train"), "ok"),
        **dict.fromkeys(("B infer", "B train"), "not compared"),
    }
    assert result.exit_code == ExitCode.OK
    assert not any(note.startswith(NO_LATENCY) for note in result.notes)


def test_a_gpu_s_rows_without_a_gpu_are_compared_exactly_and_not_broken(
    root: Path, run: Path, times: Callable[..., Played]
) -> None:
    edit_records(run, lambda record: {**record, "device": "cuda:1" if record["module"] == "A" else "cpu"})
    times(1)
    result = ask(run)
    assert outcomes(result) == {"B infer": "ok", "B train": "ok", "A": "not compared"}
    assert re.fullmatch(
        r"It was measured on cuda:1; torch (sees no GPU here|was built with CUDA \S+, but no driver answers)\.",
        rows_of(result)["A"].reason,
    )
    assert (result.exact, result.compared) == ((), 10)
    assert "driver" not in result.conditions
    result = ask(run, "A.py:A")
    assert (result.compared, result.exit_code) == (5, ExitCode.NOTHING_COMPARED)
    assert "driver" not in result.conditions


def test_a_static_run_is_compared_exactly_and_nothing_is_timed(root: Path, measured: dict[str, Path]) -> None:
    result = ask(measured["static"])
    assert (result.rows, result.exact, result.compared) == ((), (), 10)
    assert result.exit_code == ExitCode.OK
    write(root, "C", "pass")
    result = ask(measured["static"], "A.py:A", "C.py:C")
    assert outcomes(result) == {"C": "not compared"}
    assert (result.compared, result.exit_code) == (5, ExitCode.OK)
    assert ask(measured["static"], "C.py:C").exit_code == ExitCode.NOTHING_COMPARED


def test_a_suite_without_latency_compares_a_timed_run_exactly(
    root: Path, measured: dict[str, Path], tmp_path: Path
) -> None:
    result = ask(measured["run"], suite=str(write_suite(tmp_path, ["*"], ["params"])))
    assert (result.rows, result.compared, result.exit_code) == ((), 10, ExitCode.OK)
