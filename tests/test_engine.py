"""The engine with real processes: each case alone, every failure a row, nothing lost whatever kills the run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest
from conftest import asked_of
from fakes import LONGEST_S, EngineClock, FakeExecutor

import ctxbench
from ctxbench.base.clocks import Machine
from ctxbench.base.errors import EngineError, UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.progress import Quiet
from ctxbench.engine.remote import task_of
from ctxbench.engine.run import locked, machine, resume
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Doing
from ctxbench.registry.reference import Reference
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker.protocol import MeasureCase, Payload, Reply

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("shared_server")]
FAILING = Path(__file__).parent / "fixtures" / "failing.py"
SuiteFile = Callable[..., Path]

EXPECTED = {
    "Failing": ("ok", ""),
    "Segfault": ("crashed", "killed in first_infer by SIGSEGV"),
    "Sleep": ("timeout", "still in first_infer after 600 s"),
    "Eat": ("oom", "out of memory"),
    "Killed": ("crashed", "killed in first_infer by SIGKILL"),
    "Quit": ("crashed", "exit code 3; it last printed: last words"),
    "NotANumber": ("nan", "the output of the infer pass holds NaN"),
    "GradientNotANumber": ("nan", "the gradient of scale holds NaN"),
    "Raise": ("error", "ValueError: the user's own words (failing.py, line "),
    "Half": ("unsupported", "not implemented for 'Half'"),
    "Wrong": ("error", "returns shape [1, 8, 1, 5] for [1, 8, 6, 5]"),
    "Narrow": ("ok", ""),
    "Tuple": ("error", "returns tuple; a context module returns one tensor"),
}


class TimePassesInSleep(Quiet):
    """The time limit of `Sleep` is reached as soon as it sleeps, however slow the machine is; that of others never."""

    def __init__(self, clock: EngineClock) -> None:
        self.clock, self.module = clock, ""

    def process(self, index: int, total: int, case: Case, number: int) -> None:
        self.module = case.module

    def metric(self, name: str) -> None:
        if self.module == "Sleep":
            self.clock(Doing(name))


@pytest.fixture(scope="module")
def failures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, module_server: None
) -> pd.DataFrame:
    """One run over the failing modules that are asked for."""
    folder = tmp_path_factory.mktemp("failures")
    suite = folder / "failing.toml"
    modules = ", ".join(f'"{FAILING}:{name}"' for name in {"Failing", "GradientNotANumber", *asked_of(request, "name")})
    suite.write_text(
        f'title = "t"\nmodules = [{modules}]\nmetrics = ["params", "macs", "latency"]\n[axes]\nshape = [1, 8, 6, 5]\n'
        "[measure]\nprocesses = 1\nsample_s = 0.01\nwarmup_s = 0\ntimeout_s = 600\nmemory_limit_gib = 1\n"
    )
    clock = EngineClock(Doing("first_infer"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctxbench.base.clocks.here", clock)
        frame = ctxbench.run(str(suite), out=folder / "run", reporter=TimePassesInSleep(clock)).frame
    return frame.set_index("module")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_failure_is_a_row_with_a_sentence(failures: pd.DataFrame, name: str) -> None:
    status, sentence = EXPECTED[name]
    row = failures.loc[name]
    assert row["status"] == status
    assert sentence in row["message"]


def test_what_was_measured_before_a_failure_is_kept(failures: pd.DataFrame) -> None:
    assert {*failures["params"]} == {8}
    assert {*failures["macs"]} == {240}
    assert failures.loc["GradientNotANumber", "latency_infer_ms"] > 0
    assert failures.loc["Failing", "latency_train_ms"] > 0


def test_each_case_has_a_fresh_process_without_threads(one_server: ForkServer) -> None:
    seen: list[Reply] = []
    for _ in range(2):
        one_server.run(task_of("machine"), seen.append)
        assert len(os.listdir(f"/proc/{one_server._interpreter.process.pid}/task")) == 1
    assert [type(message) for message in seen] == [Payload, Payload]


def test_a_script_without_a_main_guard_runs_once_without_torch_and_no_file_takes_the_place_of_a_library(
    suite_file: SuiteFile, tmp_path: Path
) -> None:
    folder, script = tmp_path / "here", tmp_path / "script.py"
    (folder / "ctxbench").mkdir(parents=True)
    for name in ("random.py", "torch.py", "ctxbench/__init__.py"):
        (folder / name).write_text("raise RuntimeError('the wrong one')\n")
    (folder / "mine.py").write_text(FAILING.read_text())
    suite = suite_file(["mine.py:Failing", "sa"], ("params", "macs"))
    script.write_text(
        "import sys, ctxbench\nprint('here')\n"
        f"run = ctxbench.run({str(suite)!r}, out={str(tmp_path / 'run')!r})\n"
        "assert run.frame['status'].tolist() == ['ok', 'ok']\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "here\n"


def test_in_process_measures_the_same_values(suite_file: SuiteFile, tmp_path: Path) -> None:
    path = str(suite_file(["ham_nmf"], metrics=("params", "macs", "latency"), axes="", measure=""))
    shape = (1, 8, 16, 16)
    inside = ctxbench.run(path, shape=shape, out=tmp_path / "a", in_process=True).frame
    outside = ctxbench.run(path, shape=shape, out=tmp_path / "b").frame
    for column in ("case", "status", "params", "macs", "macs_matmul", "macs_formula"):
        assert inside[column].tolist() == outside[column].tolist()


def test_static_runs_on_meta_and_measures_no_latency(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = str(suite_file(["sa"], metrics=("params", "macs", "memory", "latency")))
    frame = ctxbench.run(suite, shape=(16, 512, 256, 256), static=True, out=tmp_path / "run").frame
    assert frame["device"].tolist() == ["meta"]
    assert frame["macs"].tolist() == [4 * 16 * 65536 * 512**2 + 2 * 16 * 65536**2 * 512]
    assert frame["latency_infer_ms"].isna().all()


def test_a_case_predicted_not_to_fit_is_skipped(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = str(suite_file(["sa"], metrics=("params", "memory", "latency")))
    frame = ctxbench.run(suite, shape=(16, 512, 256, 256), out=tmp_path / "run").frame
    assert frame["status"].tolist() == ["oom"]
    assert "out of memory (predicted): predicted peak" in frame["message"][0]
    assert frame["elapsed_s"][0] < 60


def test_dtypes_and_layouts_reach_the_module(suite_file: SuiteFile, tmp_path: Path) -> None:
    axes = (
        'dtype = ["float32", "bfloat16", "autocast-bfloat16", "tf32"]\nmemory_format = ["contiguous", "channels_last"]'
    )
    frame = ctxbench.run(str(suite_file([f"{FAILING}:Tells"], axes=axes)), out=tmp_path / "run").frame
    found = {(row.dtype, row.memory_format): row.message.split(" (failing.py")[0] for row in frame.itertuples()}
    assert set(frame["status"][frame["dtype"] != "tf32"]) == {"error"}
    layouts = {"contiguous": (240, 30, 5, 1), "channels_last": (240, 1, 40, 8)}
    for name, strides in layouts.items():
        assert found["float32", name] == f"ValueError: torch.float32 {strides}"
        assert found["bfloat16", name] == f"ValueError: torch.bfloat16 {strides}"
        assert found["autocast-bfloat16", name] == f"ValueError: torch.float32 autocast to torch.bfloat16 {strides}"
        assert "tf32" in found["tf32", name]
    assert set(frame["status"][frame["dtype"] == "tf32"]) == {"unsupported"}


def test_flags_and_load_are_recorded(suite_file: SuiteFile, tmp_path: Path) -> None:
    frame = ctxbench.run(str(suite_file(["sa"], axes="threads = 1")), out=tmp_path / "run").frame
    found = json.loads(frame["machine_state"][0])
    assert found["flags"] == {
        "threads": 1, "tf32_matmul": False, "tf32_cudnn": False, "cudnn_benchmark": False, "seed": 0,
    }  # fmt: skip
    assert frame["others_share"][0] >= 0
    malloc = json.loads((tmp_path / "run" / "run.json").read_text())["environment"]["malloc"]
    assert malloc["MALLOC_MMAP_THRESHOLD_"] == str(32 * 2**20)


def command(suite: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "ctxbench", "run", "--suite", str(suite), "--out", str(out)]


def finished(path: Path) -> int:
    """Number of finished processes of a run."""
    return sum(map(len, RunFolder.open(path).finished().values())) if (path / "processes.csv").exists() else 0


@pytest.mark.long
def test_a_run_that_is_killed_in_a_round_is_resumed(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = suite_file(["sa", "linear", "acf"], processes=2)
    out = tmp_path / "killed"
    with subprocess.Popen(command(suite, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while finished(out) < 4:
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    before = finished(out)
    assert 4 <= before < 9
    resume(out)
    resumed = RunFolder.open(out)
    assert resumed.meta["state"] == "finished"
    frame = resumed.frame()
    assert frame["module"].tolist() == ["sa", "linear", "acf"]
    assert frame["status"].tolist() == ["ok"] * 3
    found = resumed.finished()
    assert all({0, 1, 2} <= processes.keys() for processes in found.values())
    counts = resumed.samples().groupby(["case", "process", "mode"]).size()
    for case, processes in found.items():
        for number, each in processes.items():
            assert counts.get((case, number, "infer"), 0) == (each.get("latency_infer_samples") or 0)


@pytest.mark.long
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = suite_file([f"{FAILING}:Sleep", f"{FAILING}:Failing"], timeout=600)
    out = tmp_path / "run"
    process = subprocess.Popen(command(suite, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while finished(out) < 2:
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert re.search(rf"[23] of 4 processes are in {out}", errors)
    assert f"ctxbench resume {out}" in errors
    stopped = RunFolder.open(out)
    assert stopped.meta["state"] == "interrupted"
    assert stopped.frame()["params"].tolist() == [8, 8]


def test_retry_failed_measures_failed_cases_again(
    suite_file: SuiteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # code below the working folder is one's own, also where it is other code today
    module = tmp_path / "flaky.py"
    module.write_text(FAILING.read_text())
    failing = tmp_path / "failing.py"
    failing.write_text(FAILING.read_text())
    suite = suite_file([f"{failing}:Failing", f"{module}:Raise"])
    run = ctxbench.run(str(suite), out=tmp_path / "run")
    assert run.failed == 1
    assert resume(run.path, run_its_code=True).failed == 1
    module.write_text(FAILING.read_text().replace("raise ValueError", "return y  # "))
    assert resume(run.path, retry_failed=True, run_its_code=True).failed == 0
    assert run.frame["case"].nunique() == 2


def test_two_runs_in_one_folder_are_refused(suite_file: SuiteFile, tmp_path: Path) -> None:
    run = ctxbench.run(str(suite_file(["sa"])), out=tmp_path / "run")
    with locked(run.path), pytest.raises(UsageError, match="another ctxbench is writing"):
        resume(run.path)


def test_a_folder_that_another_run_holds_stays_as_it_is(suite_file: SuiteFile, tmp_path: Path) -> None:
    """Of two runs that begin at once, the one that is refused writes no `run.json`."""
    with locked(tmp_path / "run"), pytest.raises(UsageError, match="another ctxbench is writing"):
        ctxbench.run(str(suite_file(["sa"])), out=tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_fork_server_whose_maker_is_gone_ends_before_it_imports_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ctxbench.worker.fork_server", "-1", *"00000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ctxbench.worker.processes" in done.stderr
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert not [name for name in imported if name.startswith("torch.")]


def test_resume_refuses_another_machine(suite_file: SuiteFile, tmp_path: Path) -> None:
    run = ctxbench.run(str(suite_file(["sa"])), out=tmp_path / "run")
    environment = run.folder.meta["environment"] | {"cpu": "Z80"}
    run.folder.save_meta(environment=environment)
    with pytest.raises(UsageError, match="cpu: Z80 then"):
        resume(run.path)


@pytest.mark.long
def test_a_module_that_kills_the_measuring_process_costs_its_own_row(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = suite_file([f"{FAILING}:KillsItsParent", f"{FAILING}:Failing", "sa"])
    run = ctxbench.run(str(suite), out=tmp_path / "run")
    assert run.frame["status"].tolist() == ["crashed", "ok", "ok"]
    assert "by SIGKILL" in run.frame["message"][0]
    assert resume(run.path, retry_failed=True).frame()["status"].tolist() == ["crashed", "ok", "ok"]


@pytest.mark.parametrize(
    ("script", "last"), [("exit 1", "it printed nothing"), ("echo no memory >&2; exit 1", "it last printed: no memory")]
)
def test_a_measuring_process_that_cannot_start_says_what_it_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], script: str, last: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    sentence = f"the measuring process ended with code 1 3 times; {last}"
    with ForkServer() as server, pytest.raises(EngineError, match=sentence):
        server.run(task_of("machine"), lambda message: None)
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_server_that_is_killed_before_its_task_is_replaced(number: signal.Signals) -> None:
    with ForkServer(static=False) as server:
        for _ in range(2):  # while it imports torch, then when it is ready
            os.kill(server._interpreter.process.pid, number)
            seen: list[Reply] = []
            ended = server.run(task_of("machine"), seen.append)
            assert [type(message) for message in seen] == [Payload]
            assert (ended.code, ended.signal, ended.early) == (0, 0, False)


@pytest.mark.long
def test_all_processes_of_a_run_end_when_its_own_is_killed() -> None:
    case = f"Case('Sleep', '{FAILING}:Sleep', {{}}, (1, 8, 6, 5))"
    code = (
        "import math\n"
        "from ctxbench.engine.client import ForkServer\n"
        "from ctxbench.model.case import Case, Measure\n"
        "from ctxbench.worker.protocol import MeasureCase\n"
        "server = ForkServer(static=False)\n"
        f"server.start(MeasureCase({case}, Measure(), ['latency']))\n"
        "while server._child is None:\n"
        "    message = server._next(math.inf)\n"
        "    server._child = getattr(message, 'pid', None)\n"
        "print(server._interpreter.process.pid, server._child, flush=True)\n"
        "server.stop = lambda: None\n"
        "input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        watched = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
    assert len(watched) == 2
    _, alive = psutil.wait_procs(watched, timeout=LONGEST_S)
    assert alive == []


def test_a_machine_that_is_not_described_is_an_error() -> None:
    mute = FakeExecutor(lambda task: [], Exit(1, 0, False, "Traceback\nRuntimeError: no driver\n"))
    with pytest.raises(EngineError, match="it last printed: RuntimeError: no driver"):
        machine(mute)


@pytest.mark.long
def test_a_child_that_sigkill_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EngineClock(Doing("first_infer"))
    monkeypatch.setattr("ctxbench.base.clocks.here", clock)
    monkeypatch.setattr("ctxbench.engine.client.KILL_S", -1.0)
    case = Case("Sleep", f"{FAILING}:Sleep", {}, (1, 8, 6, 5))
    with ForkServer() as server:
        stuck: list[int | None] = []
        monkeypatch.setattr(server, "_kill_child", lambda: stuck.append(server._child))
        ended = server.run(MeasureCase(case, Measure(), ["latency"]), clock, timeout_s=600)
        assert (ended.timed_out, ended.signal) == (True, signal.SIGKILL)
        os.killpg(next(filter(None, stuck)), signal.SIGKILL)
        seen: list[Reply] = []
        server.run(task_of("machine"), seen.append)  # a new fork server takes the next task
        assert [type(message) for message in seen] == [Payload]


class TimePassesOnceThereIs(Machine):
    """A machine on which six seconds pass each time that the clock is read, once there is a file."""

    pace = 0.001

    def __init__(self, file: Path) -> None:
        self.file, self.seconds = file, 0.0

    def wall_s(self) -> float:
        self.seconds += 6 * self.file.exists()
        return self.seconds


@pytest.mark.processes
@pytest.mark.parametrize("question", ["block", "network"])
def test_an_import_that_waits_is_told_once_and_given_up_at_its_limit(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, begun = tmp_path / "waits.py", tmp_path / "begun"
    file.write_text(
        f"import time\nprint('fetching weights', flush=True)\nopen({str(begun)!r}, 'w')\ntime.sleep(10**6)\n"
    )
    monkeypatch.setattr("ctxbench.base.clocks.here", TimePassesOnceThereIs(begun))
    with (
        IsolatedLoader() as loader,
        pytest.raises(UsageError, match="takes more than 600 s; it last printed: fetching"),
    ):
        loader.entry(Reference(str(file), "A")) if question == "block" else loader.network_shape(f"{file}:A")
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("waits.py")[2] for line in said] == [
        f"{':A' * (question == 'network')} is still being imported after 10 s; after 600 s it is given up"
    ]


@pytest.mark.plugin("show")
@pytest.mark.processes
def test_a_block_that_waits_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, begun = tmp_path / "waits.py", tmp_path / "begun"
    file.write_text(
        "import time\nfrom torch import nn\nclass A(nn.Module):\n    def __init__(self, channels):\n"
        f"        open({str(begun)!r}, 'w')\n        time.sleep(10**6)\n"
    )
    monkeypatch.setattr("ctxbench.base.clocks.here", TimePassesOnceThereIs(begun))
    said: list[str] = []

    def interrupted(text: str, stderr: bool) -> None:
        said.append(text)
        if "ended" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr("ctxbench.engine.isolated.say", interrupted)
    with IsolatedLoader() as loader, pytest.raises(KeyboardInterrupt):
        loader.ask(Case("A", f"{file}:A", {}, (1, 8, 6, 5)), "costs", list[str], False, [])
    assert said[-1:] == ["A [1, 8, 6, 5] has not ended after 60 s; Ctrl-C gives it up"]
