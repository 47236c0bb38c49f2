"""The script behind `make gpu`, without a GPU: fake steps, the time limit, what it says; the whole of it, simulated."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from fakes import wait_until
from simulated_gpu import SimulatedGpu
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import cudnn_live
import expectations
import gpu
import gpu_blocks
import gpu_step
import gpu_steps
import strided_gradients
from gpu_step import LARGE, SMALL, CannotRun, Case, Step, Verdict

from ctxbench.model import case as model_case

RESULTS = gpu.ROOT / "results"
# The limit of steps that never end, seconds.
HANGING_S = 1.0
GPU = {"GPU": "NVIDIA Test 9000", "compute capability": "9.0", "driver": "1.2", "torch": "2.13.0", "GPUs": "1"}
SCRIPTS = {
    "well": "print('some output')",
    "fails": "raise ValueError('no such thing')",
    "hangs": "import time; time.sleep(600)",
    "deaf": "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)",
    "crashes": "import os; print('before', flush=True); os.kill(os.getpid(), 11)",
    "silent": "import sys; sys.exit(3)",
}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "ended"),
    [
        ("well", ""),
        ("fails", "exit code 1: ValueError: no such thing"),
        ("hangs", "stopped after 1 s"),
        ("deaf", "stopped after 1 s"),
        ("crashes", "killed by SIGSEGV: before"),
        ("silent", "exit code 3: no output"),
    ],
)
def test_how_a_step_s_process_ends(name: str, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 1.0)
    limit = HANGING_S if name in ("hangs", "deaf") else 600.0
    assert gpu.run_step([sys.executable, "-c", SCRIPTS[name]], tmp_path / "log", limit) == ended


@pytest.mark.processes
def test_what_a_late_step_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 2 * HANGING_S)
    mark = tmp_path / "alive"
    child = f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(600)"
    start = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"

    class LateOnceItsChildRuns(subprocess.Popen):  # type: ignore[type-arg]  # a class at run time
        def wait(self, timeout: float | None = None) -> int:
            if timeout == HANGING_S:
                wait_until(lambda: mark.exists() and mark.read_text() != "")
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", LateOnceItsChildRuns)
    gpu.run_step([sys.executable, "-c", start], tmp_path / "log", HANGING_S)
    pid = int(mark.read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


class Bench:
    """Fake steps on a fake clock: each takes its seconds, and counts in a file how often it was run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.given = 0.0, list[float]()
        monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: self.now))

    def step(self, name: str, seconds: float, parts: int = 1, good: bool = True) -> Step:
        def measure(out: Path, deadline: float) -> None:
            before = int((out / name).read_text()) if (out / name).exists() else 0
            (out / name).write_text(str(before + 1))
            self.now += seconds

        def judge(out: Path) -> Verdict:
            if not (out / name).exists():
                raise CannotRun("nothing was measured")
            done = int((out / name).read_text())
            return Verdict(good, f"{done} parts", f"{parts - done} parts" if done < parts else "")

        return Step(name, f"the step {name}", "", seconds, "assumed", measure, judge)

    def run(self, step: Step, out: Path, limit: float) -> str:
        self.given.append(limit)
        step.measure(out, 0.0)
        return ""


def test_a_second_call_goes_on_where_the_first_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    steps = [bench.step("a", 30), bench.step("b", 50, parts=2), bench.step("c", 30, good=False), bench.step("d", 9)]
    first = gpu.run_all(steps, bench.run, GPU, tmp_path, 85.0)
    assert [outcome.verdict for outcome in first] == ["as expected", "not finished", gpu.SKIPPED, gpu.SKIPPED]
    assert first[1].seen == "1 parts; left: 1 parts"
    assert bench.given == [39.0, 55.0]  # 1.3 times what it takes, or what is left
    second = gpu.run_all(steps, bench.run, GPU, tmp_path, 500.0)
    verdicts = ["as expected", "as expected", "not as expected", "as expected"]
    assert [outcome.verdict for outcome in second] == verdicts
    assert [outcome.seconds for outcome in second] == [30, 100, 30, 9]
    assert bench.given[2:] == [65.0, 39.0, pytest.approx(11.7)]
    stored = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    assert (stored["gpu"], [each["verdict"] for each in stored["steps"]]) == (GPU, verdicts)
    assert gpu.run_all(steps, bench.run, GPU, tmp_path, 500.0) == second
    assert len(bench.given) == 5


def test_no_step_stops_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    (tmp_path / "damaged").write_text("x")
    steps = [bench.step("damaged", 10), bench.step("stopped", 20), bench.step("last", 20)]

    def run(step: Step, out: Path, limit: float) -> str:
        return "exit code 1: damaged" if step.name != "last" else bench.run(step, out, limit)

    outcomes = gpu.run_all(steps, run, GPU, tmp_path, 100.0)
    assert [(outcome.verdict, outcome.seen) for outcome in outcomes] == [
        ("could not run", "exit code 1: damaged; ValueError: invalid literal for int() with base 10: 'x'"),
        ("could not run", "exit code 1: damaged; nothing was measured"),
        ("as expected", "1 parts"),
    ]


def test_the_plan_is_for_two_calls(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first six steps, which no machine has told, fit into ten minutes, and all into a loan of fifteen."""
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run"])
    assert gpu.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(".")[0] for line in lines[:-1:2]] == [str(number) for number in range(1, 11)]
    assert all(line.startswith("   expected: ") and len(line) > 20 for line in lines[1:-1:2])
    names = ["table3", "paper", "cudnn", "kernels", "peaks", "gradients", "time", "gate", "compiled", "alone"]
    assert [step.name for step in gpu_steps.STEPS] == names
    assert sum(step.seconds for step in gpu_steps.STEPS[:6]) <= 600
    assert sum(step.seconds for step in gpu_steps.STEPS) <= 820
    assert all(
        step.because.partition(" ")[0] in ("a", "two", "derived:", "measured:", "assumed:") for step in gpu_steps.STEPS
    )


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


def test_a_run_of_another_gpu_or_program_is_not_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "describe", lambda: GPU)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "gpu-a")])
    steps = [{"name": "table3", "verdict": gpu.SKIPPED}]
    (tmp_path / "gpu-a").mkdir()
    for content in ({"gpu": {**GPU, "torch": "2.11"}, "steps": steps}, {"gpu": GPU, "steps": [{"step": "old"}]}):
        (tmp_path / "gpu-a" / "steps.json").write_text(json.dumps(content))
        assert gpu.main() == 2
        assert "has a run of another GPU" in capsys.readouterr().err
        assert gpu.next_folder(tmp_path / "gpu-a", GPU) == tmp_path / "gpu-a-2"
    (tmp_path / "gpu-a" / "steps.json").write_text(json.dumps({"gpu": GPU, "steps": steps}))
    assert gpu.next_folder(tmp_path / "gpu-a", GPU) == tmp_path / "gpu-a"
    assert gpu.next_folder(tmp_path / "gpu-b", GPU) == tmp_path / "gpu-b"
    assert gpu.next_folder(RESULTS / "gpu-h200", GPU) == RESULTS / "gpu-h200-3"


def test_a_product_name_becomes_a_folder_name() -> None:
    assert gpu.slug("NVIDIA H100 80GB HBM3") == "h100-80gb-hbm3"
    assert gpu.slug("NVIDIA GeForce RTX 4090 (laptop)") == "geforce-rtx-4090-laptop"


@pytest.mark.processes
def test_a_clone_is_imported_as_it_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    gpu.put_clone_on_path(tmp_path)
    found = "*[i.find_spec('ctxbench.' + each) is not None for each in ('modules.sa', 'report.write')]"
    code = f"import importlib.util as i, ctxbench; print(ctxbench.__path__, {found})"
    command = [sys.executable, "-S", "-c", code]  # without what is installed
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == [f"['{tmp_path / 'ctxbench'}']", "True", "True"]


# What the steps saw on the H200 in November 2026, by the first program.
H200 = {
    "table3": ("not finished", "22 times of 11 rows; "),
    "peaks": (None, " of 648 peaks in their bands; furthest: "),
    "time": ("as expected", "SA infer in ms. [1, 128, 32, 32]: host 0.200, eager 0.176, flushed 0.086, graph 0.064; "),
    "gate": ("could not run", "no self-test has ended"),
    "kernels": ("could not run", "no kernel was written"),
}


@pytest.mark.parametrize("name", H200)
def test_an_older_run_is_judged_by_today_s_expectations(name: str) -> None:
    (step,) = [each for each in gpu_steps.STEPS if each.name == name]
    verdict, seen = gpu.judged(step, RESULTS / "gpu-h200")
    expected, part = H200[name]
    assert part in seen
    assert expected in (verdict, None)


def test_our_faults_are_told_from_those_of_expectations() -> None:
    steps = [each for each in gpu_steps.STEPS if each.name in ("time", "gate")]
    timed, gate, *gone = gpu.told_apart(steps, RESULTS / "gpu-h200")
    assert (timed.now, timed.then) == ("as expected", "not as expected")
    assert timed.fault == "the expectation's: the same files are as expected today"
    assert gate.fault == "ctxbench's: the step did not fit into its time"
    assert {each.now for each in gone} == {""}
    assert len(gone) == 8
    assert gpu.whose_fault("not as expected", "not as expected") == "ctxbench's: today's prediction is not met either"
    assert gpu.whose_fault("as expected", "not as expected") == gpu.whose_fault("", "as expected") == ""


def test_what_is_not_installed_is_named() -> None:
    assert gpu.lacking() == []
    found = subprocess.run([sys.executable, "-S", gpu.__file__, "--dry-run"], stderr=subprocess.PIPE, text=True)
    assert found.returncode == 2
    assert found.stderr.startswith("gpu.py: this Python lacks what ctxbench needs: torch, numpy, scipy, ")
    assert found.stderr.count("\n") == 1


def table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    expectations.write(path, columns, rows)


PEAK = expectations.ExpectedPeak


@pytest.mark.parametrize(
    ("peak", "measured", "holds"),
    [
        (PEAK(1000, 1000), 1010, True),
        (PEAK(1000, 1000), 1011, False),
        (PEAK(1000, 1000), 990, True),
        (PEAK(1000, 1000), 989, False),
        (PEAK(1000, 1500), 1515, True),
        (PEAK(1000, 1000, ("aten.sort",)), 5000, True),
        (PEAK(1000, 1000, ("aten.sort",)), 989, False),
    ],
)
def test_a_band_of_peaks(peak: expectations.ExpectedPeak, measured: int, holds: bool) -> None:
    assert peak.holds(measured) == holds


def test_a_table_goes_on_after_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(gpu_step, "time", SimpleNamespace(monotonic=lambda: now[0]))
    items = [Case(name, "infer", "float32", (1, 8, 4, 4)) for name in ("a", "b", "c", "d")]
    asked: list[str] = []

    def rows(case: Case) -> list[tuple[object, ...]]:
        now[0] += 1
        asked.append(case.module)
        if case.module == "b":
            raise RuntimeError("no\nroom")
        return [(1, "x,y"), (2, "z")]

    path = tmp_path / "t.csv"
    gpu_step.go_through(items, path, gpu_step.CELLS, ("n", "text"), rows, 1.5)
    path.write_text(path.read_text() + "c,infer,fl")  # it was killed here
    gpu_step.go_through(items, path, gpu_step.CELLS, ("n", "text"), rows, 100)
    assert asked == ["a", "b", "c", "d"]
    found = gpu_step.read(path)
    assert [(row["module"], row["n"], row["text"], row["refused"]) for row in found] == [
        ("a", "1", "x,y", ""),
        ("a", "2", "z", ""),
        ("b", "", "", "RuntimeError: no"),
        *((name, *each, "") for name in "cd" for each in (("1", "x,y"), ("2", "z"))),
    ]


def test_a_lost_gpu_ends_the_process_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Case(name, "infer", "float32", (1, 8, 4, 4)) for name in ("a", "b", "c")]

    def rows(case: Case) -> list[tuple[object, ...]]:
        if case.module == "b":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return [("1",)]

    def measure(step: Step, out: Path, seconds: float) -> str:
        try:
            gpu_step.go_through(items, tmp_path / "t.csv", gpu_step.CELLS, ("n",), rows, 1e9)
        except RuntimeError as error:
            return f"exit code 1: {error}"
        return ""

    started: list[str] = []

    def run_step(command: Sequence[str], log: Path, limit: float) -> str:
        started.append(command[3])
        return measure(gpu_steps.STEPS[3], tmp_path, limit)

    monkeypatch.setattr(gpu, "run_step", run_step)
    monkeypatch.setattr(gpu_step, "time", SimpleNamespace(monotonic=lambda: 0.0))
    assert gpu.in_own_process(gpu_steps.STEPS[3], tmp_path, 100.0) == ""
    assert started == ["kernels", "kernels"]
    found = gpu_step.read(tmp_path / "t.csv")
    assert [(row["module"], row["n"], row["refused"][:24]) for row in found] == [
        ("a", "1", ""),
        ("b", "", "RuntimeError: CUDA error"),
        ("c", "1", ""),
    ]


def test_a_peak_and_its_blocks_are_measured(monkeypatch: pytest.MonkeyPatch, plain_kernels: None) -> None:
    monkeypatch.setattr(gpu_blocks, "DEVICE", "cpu")
    case = Case("linear", "train", "float32", (1, 32, 16, 16))
    allocated, requested, reserved = gpu_blocks.peak_of(case)
    assert allocated > 4 * 32 * 16 * 16
    assert (requested, reserved) == (0, 0)  # which the CPU's allocator does not count
    assert {row[0] for row in gpu_blocks.unmatched(case)} <= {"prediction", "allocator"}


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(x: Any) -> Any:
        return x * (1.0 if x.is_contiguous() or x.dtype.itemsize == 8 else 2.0)

    monkeypatch.setattr(strided_gradients, "OPERATORS", {"wrong": wrong, "silu": nn.functional.silu})
    trials = [strided_gradients.Trial(name, "float32", 2) for name in ("wrong", "silu")]
    (first,), (second,) = (strided_gradients.compared(trial, "cpu") for trial in trials)
    assert (second[:2], second[1]) == ((51, 0), 0)
    assert first[1] == 24  # of the 24 orders one is contiguous; and every second place
    table(tmp_path / "gradients.csv", [*strided_gradients.KEYS, *strided_gradients.COLUMNS, "refused"], [
        (*trials[0].cells(), *first, ""), (*trials[1].cells(), *second, "")
    ])  # fmt: skip
    found = strided_gradients.judge(tmp_path)
    assert not found.good
    assert found.seen.startswith("1 of 2 operators right, 0 without a gradient; wrong float32 2: image ")


def test_the_convolutions_of_a_block_are_seen() -> None:
    found = cudnn_live.of_block(Case("lka", "train", "float32", (1, 8, 16, 16)))
    assert {each.turn for each in found} == {"forward", "image", "weight"}
    assert {each.weight for each in found} == {(8, 8, 1, 1), (8, 1, 5, 5), (8, 1, 7, 7)}
    assert {each.dilation for each in found if each.weight[2] == 7} == {(3, 3)}
    known = cudnn_live.convolutions()
    assert len(known) == 4 * (cudnn_live.TABLE.read_text().count("\n") - 1) > 1000
    assert {each.dtype for each in known if not each.tf32} == {"float32"}


@contextmanager
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedGpu]:
    """The H200 of the committed run: the engine's processes, and what the steps measure beside it, on one clock."""
    environment = json.loads((RESULTS / "table3-h200" / "run.json").read_text())["environment"]
    bands = expectations.expected_times("NVIDIA H200")

    def passes(case: model_case.Case, before: Sequence[model_case.Case]) -> tuple[float, float]:
        if case.shape == SMALL:
            return (0.06 if case.execution == "graph" else 0.18), 1.0
        infer, train = (sum(bands[case.module, mode]) / 2 for mode in ("infer", "train"))
        return infer, train

    device = SimulatedGpu(passes, environment=environment)
    monkeypatch.setattr("ctxbench.base.clocks.here", device)
    monkeypatch.setattr("ctxbench.engine.run._executors", lambda *arguments: (device, device.launch))
    for module in (gpu, gpu_step, gpu_blocks):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=device.wall_s))

    def takes(seconds: float, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def measure(item: Any) -> Any:
            device.takes(seconds)
            return answer(item)

        return measure

    def check(path: Path, *options: str) -> None:
        device.takes(15 + gpu_steps.GATE_S)
        counts = {"unchanged": 2, "false_alarms": 0, "injected": 2 * bool(options), "found": 2 * bool(options)}
        path.write_text(json.dumps({"self_test": counts}))

    expected = expectations.expected_peaks()
    name = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(cutlass::Params)"
    kernels = [(f"{name} {number}", "aten::addmm", 3, "12.34") for number in range(35)]
    monkeypatch.setattr(gpu_blocks, "kernels_of", takes(0.2, lambda case: kernels))
    monkeypatch.setattr(gpu_blocks, "peak_of", takes(0.09, lambda case: (expected[case.cells()].bytes, 0, 0)))
    monkeypatch.setattr(gpu_blocks, "compiled_of", takes(7.0, lambda block: [("1.0", "0.5", "0.7", "6.0")]))
    monkeypatch.setattr(cudnn_live, "both_sides", lambda: [SimpleNamespace(properties=lambda: "{}")])
    monkeypatch.setattr(cudnn_live, "asked", takes(0.04, lambda each: [("58", "512", "58", "512", "512", "0.1")]))
    monkeypatch.setattr(strided_gradients, "compared", takes(0.06, lambda trial: [(51, 0, "1e-7", "contiguous")]))
    monkeypatch.setattr(gpu_steps, "check", check)
    yield device


@pytest.mark.long
def test_the_whole_program_runs_to_its_end_in_fifteen_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two calls on a simulated H200, on which each step's process begins in 5 s, and none is found too long."""
    with simulated(monkeypatch) as device:

        def run(step: Step, out: Path, limit: float) -> str:
            device.ends_s = device.seconds + limit
            try:
                device.takes(5)
                step.measure(out, device.ends_s - 5)
            except KeyboardInterrupt:
                return f"stopped after {limit:.0f} s"
            finally:
                device.ends_s = float("inf")
            return ""

        out = tmp_path / "gpu-h200"
        first = gpu.run_all(gpu_steps.STEPS, run, GPU, out, 600)
        spent = device.seconds
        second = gpu.run_all(gpu_steps.STEPS, run, GPU, out, 300)
    with capsys.disabled():
        print("\n" + "\n".join(f"{each.name:10} {each.seconds:4.0f} s  {each.verdict}: {each.seen}" for each in second))
    assert [each.verdict for each in second] == ["as expected"] * 10
    assert sum(each.verdict == "as expected" for each in first) >= 7
    assert spent <= 600
    assert device.seconds - spent <= 300
    planned = {step.name: step.seconds for step in gpu_steps.STEPS}
    assert {each.name: each.seconds for each in second if each.seconds > planned[each.name]} == {}


@pytest.mark.long
def test_every_block_has_an_expectation() -> None:
    expected = expectations.expected_peaks()
    assert [str(case) for case in expectations.ALL if case.cells() not in expected] == []
    times = expectations.expected_times("NVIDIA H200")
    assert len(times) == len(expectations.expected_times("NVIDIA H100 80GB HBM3")) == 22
    assert all(low < high for low, high in times.values())
    assert LARGE == (1, 512, 128, 128)
