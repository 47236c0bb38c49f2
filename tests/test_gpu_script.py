"""The script behind `make gpu`, without a GPU: fake steps, the time limit, and what it says at once."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest
import torch
from fakes import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu
import gpu_steps
import memory_cuda
from gpu_step import CannotRun, Step

# The limit of steps that never end, seconds.
HANGING_S = 1.0
GPU = {"GPU": "NVIDIA Test 9000", "compute capability": "9.0", "driver": "1.2", "torch": "2.13.0", "GPUs": "1"}
SAYS = "import json; print('some output'); print(json.dumps({'verdict': %r, 'seen': %r}))"
SCRIPTS = {
    "passes": SAYS % (gpu.AS_EXPECTED, "3 | 4 < 5"),
    "differs": SAYS % (gpu.NOT_AS_EXPECTED, "7 instead of 8"),
    "fails": "raise ValueError('no such thing')",
    "hangs": "import time; time.sleep(600)",
    "deaf": "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)",
    "crashes": "import os; print('before', flush=True); os.kill(os.getpid(), 11)",
    "silent": "",
    "last": SAYS % (gpu.AS_EXPECTED, "all well"),
}


def fake(name: str, timeout_s: float = 30.0) -> Step:
    def never(out: Path, deadline: float) -> tuple[bool, str]:
        raise AssertionError("a step runs in its own process")

    return Step(name, f"the step {name}", f"what {name} should do", timeout_s, never)


def command(name: str, seconds: float) -> Sequence[str]:
    return [sys.executable, "-c", SCRIPTS[name]]


def run(names: Sequence[str], folder: Path, seconds: float = 10_000.0) -> list[gpu.Outcome]:
    steps = [fake(name, HANGING_S if name in ("hangs", "deaf") else 600.0) for name in names]
    return gpu.run_all(steps, command, GPU, folder / "results" / "gpu-test", seconds)


@pytest.mark.processes
def test_no_step_stops_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 1.0)
    outcomes = run(list(SCRIPTS), tmp_path)
    assert [(outcome.step.removeprefix("the step "), outcome.verdict, outcome.seen) for outcome in outcomes] == [
        ("passes", "as expected", "3 | 4 < 5"),
        ("differs", "not as expected", "7 instead of 8"),
        ("fails", "could not run", "exit code 1: ValueError: no such thing"),
        ("hangs", "could not run", "not finished after 1 s"),
        ("deaf", "could not run", "not finished after 1 s"),
        ("crashes", "could not run", "killed by SIGSEGV: before"),
        ("silent", "could not run", "exit code 0: no output"),
        ("last", "as expected", "all well"),
    ]
    folder = tmp_path / "results" / "gpu-test"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*(f"{name}.log" for name in SCRIPTS), "steps.json"]
    )
    stored = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    assert stored["gpu"] == GPU
    assert [step["verdict"] for step in stored["steps"]] == [outcome.verdict for outcome in outcomes]


@pytest.mark.processes
def test_what_a_late_step_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 2 * HANGING_S)
    mark = tmp_path / "alive"
    child = f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(600)"
    start = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    monkeypatch.setitem(SCRIPTS, "hangs", start)

    class LateOnceItsChildRuns(subprocess.Popen):  # type: ignore[type-arg]  # a class at run time
        def wait(self, timeout: float | None = None) -> int:
            if timeout == HANGING_S:
                wait_until(lambda: mark.exists() and mark.read_text() != "")
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", LateOnceItsChildRuns)
    run(["hangs"], tmp_path)
    pid = int(mark.read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.processes
def test_later_steps_are_skipped_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 1.0, 16.0, 16.0])
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    outcomes = run(["hangs", "last"], tmp_path, seconds=20)
    assert [outcome.verdict for outcome in outcomes] == ["could not run", "skipped: no time left"]
    assert outcomes[-1].seen == ""
    assert not (tmp_path / "results" / "gpu-test" / "last.log").exists()


def test_a_step_gets_no_more_time_than_is_left(tmp_path: Path) -> None:
    given = []

    def noted(name: str, seconds: float) -> Sequence[str]:
        given.append(seconds)
        return command(name, seconds)

    gpu.run_all([fake("passes", 1.0), fake("last", 600.0)], noted, GPU, tmp_path / "out", 20.0)
    assert given[0] == 1.0
    assert 10 < given[1] < 20


def test_a_step_tells_its_verdict_in_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_gpu(out: Path, deadline: float) -> tuple[bool, str]:
        raise CannotRun("torch sees one GPU")

    def good(out: Path, deadline: float) -> tuple[bool, str]:
        assert 0 < deadline - time.monotonic() <= 9
        return True, "fine"

    monkeypatch.setattr(gpu, "STEPS", (Step("one", "", "", 1, one_gpu), Step("good", "", "", 1, good)))
    told = []
    for name in ("one", "good"):
        assert gpu.answer(name, tmp_path, 9.0) == 0
        told.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert told == [
        {"verdict": "could not run", "seen": "torch sees one GPU"},
        {"verdict": "as expected", "seen": "fine"},
    ]


def test_a_dry_run_lists_the_steps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run"])
    assert gpu.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(".")[0] for line in lines[::2]] == [str(number) for number in range(1, 11)]
    assert all(line.startswith("   expected: ") and len(line) > 20 for line in lines[1::2])
    names = ["fork", "workspace", "nvml", "memory", "table3", "calibration", "time", "cuda-1", "repeat", "self-test"]
    assert [step.name for step in gpu_steps.STEPS] == names


def test_without_a_gpu_it_says_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "describe", lambda: {})
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "out")])
    assert gpu.main() == 2
    captured = capsys.readouterr()
    assert captured.err == "gpu.py: there is no GPU that torch can use, so nothing was run\n"
    assert captured.out == ""
    assert not (tmp_path / "out").exists()


def test_a_folder_with_a_run_is_not_written_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "describe", lambda: GPU)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "gpu-a")])
    (tmp_path / "table3-a").mkdir()
    assert gpu.main() == 2
    assert "has a run already" in capsys.readouterr().err
    assert gpu.unused(tmp_path / "gpu-a") == tmp_path / "gpu-a-2"
    assert gpu.unused(tmp_path / "gpu-b") == tmp_path / "gpu-b"


def test_a_product_name_becomes_a_folder_name() -> None:
    assert gpu.slug("NVIDIA H100 80GB HBM3") == "h100-80gb-hbm3"
    assert gpu.slug("NVIDIA GeForce RTX 4090 (laptop)") == "geforce-rtx-4090-laptop"


def frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Records of a run, as far as the steps read them."""
    known = {"message": "", "batch": 1, "channels": 8, "height": 4, "width": 4, "dtype": "float32", "status": "ok"}
    made = pd.DataFrame([{**known, "case": f"{row['module']} case", **row} for row in rows])
    return made.astype({name: "Int64" for name in made if str(name).endswith("_bytes")})


def give(monkeypatch: pytest.MonkeyPatch, frames: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """Let `measured` return these frames in order; what it was asked for."""
    asked: list[dict[str, Any]] = []

    def measured(folder: Path, **options: Any) -> pd.DataFrame:
        asked.append({"folder": folder.name, **options})
        return frames[len(asked) - 1]

    monkeypatch.setattr(gpu_steps, "measured", measured)
    return asked


def test_predicted_times_after_a_calibration_are_compared_with_table_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"latency_infer_ms": 10.0, "latency_train_ms": 20.0}
    bands = {
        f"latency_{mode}_{end}_ms": ms for mode in ("infer", "train") for end, ms in (("low", 9.5), ("high", 12.0))
    }
    out = tmp_path / "gpu-a"
    (tmp_path / "table3-a").mkdir()
    frame([{"module": "sa", **times, **bands}]).to_csv(tmp_path / "table3-a" / "records.csv")
    predicted = {"latency_infer_ms": 10.8, "latency_train_ms": 24.0}
    asked = give(monkeypatch, [frame([{"module": "sa", **predicted, **bands}])] * 2)
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *command, **options: done)
    assert gpu_steps.calibration(out, time.monotonic() + 9) == (True, "median error 14%, largest 20%; 50% of 2 in band")
    assert asked[0]["device"] == str(out / "calibrated.toml")
    done.returncode, done.stderr = 2, "ctxbench: cuda was not idle"
    with pytest.raises(CannotRun, match="not idle"):
        gpu_steps.calibration(out, time.monotonic() + 9)


def test_memory_names_the_largest_error_and_what_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = memory_cuda.Case("a", "infer", "float32", (1, 8, 4, 4))
    marked = memory_cuda.Predicted(1500, ("aten.sort",))
    rows = [
        memory_cuda.Peak(case, memory_cuda.Predicted(1000), 1005),
        memory_cuda.Peak(case, marked, 1000),
        memory_cuda.Peak(case, memory_cuda.Predicted(None, refused="branches"), None, "branches"),
    ]
    traced: list[Any] = []
    monkeypatch.setattr(memory_cuda, "peaks", lambda wanted, path, deadline: rows)
    monkeypatch.setattr(memory_cuda, "cases", lambda shapes, dtypes: [case] * 4)

    def write(beyond: Sequence[memory_cuda.Peak], path: Path, deadline: float) -> list[str]:
        traced.extend(beyond)
        return ["told"]

    monkeypatch.setattr(memory_cuda, "write_blocks", write)
    assert gpu_steps.memory(tmp_path, time.monotonic() + 100) == (
        True,
        "1 of 2 peaks within 1%; 1 of the others are marked; 2 not predicted or not measured; "
        "largest: +50.0% (a infer float32 [1, 8, 4, 4]); told",
    )
    assert traced == [rows[1]]
    rows.append(memory_cuda.Peak(case, memory_cuda.Predicted(900), 1000))
    good, seen = gpu_steps.memory(tmp_path, time.monotonic() + 100)
    assert not good
    assert seen.startswith("1 of 3 peaks within 1%; 1 of the others are marked")
    rows[:] = rows[2:3]
    with pytest.raises(CannotRun, match="no row has both peaks"):
        gpu_steps.memory(tmp_path, time.monotonic() + 100)


@pytest.mark.parametrize(("kilobytes", "capability", "good"), [(8320, (8, 0), True), (8320, (9, 0), False)])
def test_a_workspace_is_judged_by_the_compute_capability(
    kilobytes: int, capability: tuple[int, int], good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated = iter([512, 512 + 1024 * kilobytes, 512 + 2 * 1024 * kilobytes])
    monkeypatch.setattr(gpu_steps, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: next(allocated))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    found, seen = gpu_steps.workspace_per_thread(tmp_path, 0.0)
    assert found == good
    assert seen.startswith("forward 8,519,680 bytes, backward 8,519,680 bytes; compute capability ")


@pytest.mark.parametrize(
    ("flushed", "graph", "device", "good"),
    [(9.1, 0.03, 0.03, True), (8.0, 0.03, 0.03, False), (9.1, 0.2, 0.03, False), (9.1, 0.03, 0.3, False)],
)
def test_host_and_device_times_are_judged(
    flushed: float, graph: float, device: float, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [[0.1, 9.0], [0.05, flushed], [graph, 9.0]]
    frames = [frame([{"module": "sa", "latency_infer_ms": ms} for ms in pair]) for pair in times]
    asked = give(monkeypatch, frames)
    monkeypatch.setattr(
        gpu_steps, "host_and_device_ms", lambda shape: (0.1, device if shape == gpu_steps.SMALL else 9.0)
    )
    found, seen = gpu_steps.host_and_device(tmp_path, 0.0)
    assert found == good
    assert f"host 0.100, device 9.000; ctxbench: eager 9.000, flushed {flushed:.3f}, graph 9.000" in seen
    assert [(each["execution"], each["measure"]["flush_l2"]) for each in asked] == [
        ("eager", False),
        ("eager", True),
        ("graph", False),
    ]


def test_the_self_tests_counts_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"unchanged": 4, "false_alarms": 0, "undecided": 1, "injected": 0, "found": 0}
    found = {"unchanged": 2, "false_alarms": 0, "undecided": 0, "injected": 2, "found": 2}
    monkeypatch.setattr(gpu_steps, "check", lambda path, budget, *options: found if options else counts)
    good, seen = gpu_steps.self_test(tmp_path, time.monotonic() + 180)
    assert good
    assert seen == "false alarms: 0 of 4 without injection (1 inconclusive), 0 of 2 with; 2 of 2 slowdowns found"
    found["found"] = 1
    assert not gpu_steps.self_test(tmp_path, time.monotonic() + 180)[0]


def test_one_gpu_is_no_second_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(CannotRun, match="torch sees 1 GPU"):
        gpu_steps.second_gpu(tmp_path, 0.0)
