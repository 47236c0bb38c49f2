"""The script behind `make gpu`, without a GPU: fake steps, the time limit, the page, and what it says at once."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu
import gpu_steps
from gpu_steps import Step

GPU = {"GPU": "NVIDIA Test 9000", "compute capability": "9.0", "driver": "1.2", "torch": "2.13.0", "GPUs": "1"}
PAGE = f"No GPU has run ctxbench yet.\n\n{gpu.BEGIN}\nHow to run it.\n{gpu.END}\n"
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


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def run(names: Sequence[str], folder: Path, page: Path, seconds: float = 100.0) -> list[gpu.Outcome]:
    steps = [fake(name, 1.0 if name in ("hangs", "deaf") else 30.0) for name in names]
    return gpu.run_all(steps, command, GPU, folder / "results" / "gpu-test", seconds, page)


def test_no_step_stops_the_others(tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 1.0)
    outcomes = run(list(SCRIPTS), tmp_path, page)
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


def test_what_a_late_step_started_ends_with_it(tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 1.0)
    mark = tmp_path / "alive"
    child = f"import time\nwhile True: open({str(mark)!r}, 'w').close(); time.sleep(0.05)"
    start = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    monkeypatch.setitem(SCRIPTS, "hangs", start)
    run(["hangs"], tmp_path, page)
    assert mark.exists()
    mark.unlink()
    time.sleep(0.3)
    assert not mark.exists()


def test_later_steps_are_skipped_when_the_time_is_up(
    tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "LEAST_S", 19.5)
    outcomes = run(["hangs", "last"], tmp_path, page, seconds=20)
    assert [outcome.verdict for outcome in outcomes] == ["could not run", "skipped: no time left"]
    assert outcomes[-1].seen == ""
    assert not (tmp_path / "results" / "gpu-test" / "last.log").exists()


def test_a_step_gets_no_more_time_than_is_left(tmp_path: Path, page: Path) -> None:
    given = []

    def noted(name: str, seconds: float) -> Sequence[str]:
        given.append(seconds)
        return command(name, seconds)

    gpu.run_all([fake("passes", 1.0), fake("last", 600.0)], noted, GPU, tmp_path / "out", 20.0, page)
    assert given[0] == 1.0
    assert 10 < given[1] < 20


def test_the_page_has_the_outcome_and_keeps_its_text(tmp_path: Path, page: Path) -> None:
    run(["passes", "fails"], tmp_path, page)
    text = page.read_text(encoding="utf-8")
    first, *lines = text.splitlines()
    assert first.startswith("Last run on a GPU: NVIDIA Test 9000, 20")
    assert first.endswith("; 1 of 2 steps were as expected.")
    assert f"{gpu.BEGIN}\nHow to run it.\n{gpu.END}" in text
    assert "NVIDIA Test 9000, compute capability 9.0, driver 1.2, torch 2.13.0, GPUs 1." in lines
    rows = [line for line in lines if line.startswith("| 1 |") or line.startswith("| 2 |")]
    assert rows[0].startswith("| 1 | the step passes | what passes should do | 3 \\| 4 &lt; 5 | as expected | ")
    assert "| could not run |" in rows[1]
    again = gpu.page_text(GPU, [gpu.Outcome("a", "b", "c", gpu.AS_EXPECTED, 1.0)], 1, text)
    assert again.count(gpu.BEGIN) == again.count("## The last run") == 1
    assert "How to run it." in again
    assert "the step passes" not in again


def test_the_committed_page_can_be_written() -> None:
    text = gpu.PAGE.read_text(encoding="utf-8")
    runs = list((gpu.ROOT / "results").glob("gpu-*/steps.json"))
    assert text.startswith("Last run on a GPU: " if runs else "No GPU has run ctxbench yet.\n")
    assert "make gpu" in gpu.page_text(GPU, [], len(gpu_steps.STEPS), text)


def test_a_step_tells_its_verdict_in_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_gpu(out: Path, deadline: float) -> tuple[bool, str]:
        raise gpu_steps.CannotRun("torch sees one GPU")

    def good(out: Path, deadline: float) -> tuple[bool, str]:
        assert 0 < deadline - time.monotonic() <= 9
        return True, "fine"

    monkeypatch.setattr(gpu_steps, "STEPS", (Step("one", "", "", 1, one_gpu), Step("good", "", "", 1, good)))
    told = []
    for name in ("one", "good"):
        assert gpu.answer(name, tmp_path, 9.0) == 0
        told.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert told == [
        {"verdict": "could not run", "seen": "torch sees one GPU"},
        {"verdict": "as expected", "seen": "fine"},
    ]


def test_a_dry_run_lists_the_eight_steps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run"])
    assert gpu.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(".")[0] for line in lines[::2]] == [str(number) for number in range(1, 9)]
    assert all(line.startswith("   expected: ") and len(line) > 20 for line in lines[1::2])
    names = ["fork", "workspace", "memory", "table3", "time", "cuda-1", "self-test", "nvml"]
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
