"""CUDA on fakes: the host's share of a pass, graphs, requested memory; and the deadline and caches of the compiler."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_clock import FakeClock
from fake_cuda import FakeCuda
from torch import nn

from ctxbench import devices
from ctxbench.devices import Unsupported
from ctxbench.devices.clock import Clock
from ctxbench.devices.cpu import Cpu
from ctxbench.devices.cuda import GRAPH_WARM_UP_PASSES, Cuda
from ctxbench.engine.one_process import Plan
from ctxbench.metrics import launch
from ctxbench.metrics.compile import CACHES, compile_deadline, compiler_caches
from ctxbench.model.case import Case, Measure
from ctxbench.model.failures import OutOfTime, describe_failure
from ctxbench.model.messages import Message, MissingColumns, Values
from ctxbench.plugins.memory.measure import MeasuredPeak, measure_allocation
from ctxbench.worker.measurement import CaseMeasurement

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

SHAPE = (1, 8, 4, 4)
REFERENCE = "ctxbench.modules.sa:SelfAttention"


def test_a_graph_is_captured_after_passes_on_a_side_stream(cuda: FakeCuda) -> None:
    def step() -> str:
        cuda.log.append(f"pass on {cuda.current_stream().name}")
        return "output"

    replay = Cuda(0).captured(step)
    warm = ["pass on side"] * GRAPH_WARM_UP_PASSES
    assert cuda.log == ["side waits for main", *warm, "main waits for side", "pass on capture"]
    cuda.log.clear()
    assert [replay(), replay()] == ["output", "output"]
    assert cuda.log == ["replay", "replay"]


def test_requested_bytes_are_the_allocators_count(cuda: FakeCuda) -> None:
    assert Cuda(0).requested_bytes() is None
    cuda.stats = {"requested_bytes.all.current": 5, "requested_bytes.all.peak": 9}
    assert Cuda(0).requested_bytes() == (5, 9)


class Counting(Cpu):
    """A device whose allocator counts requests, and whose first pass makes a workspace for the thread that runs it."""

    queues = True
    keeps_workspaces = True

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def peak_bytes(self, run_pass: Callable[[], object]) -> int:
        self.peak = 1000
        run_pass()
        return 1536

    def requested_bytes(self) -> tuple[int, int] | None:
        return 1000, self.peak

    def clock(self, flush_l2: bool = False) -> Clock:
        return FakeClock(iter(lambda: 0.001, None))

    def captured(self, step: Callable[[], object]) -> Callable[[], object]:
        return step


class Watched(nn.Module):
    """Notes the device's state and its own gradient at each pass."""

    def __init__(self, device: Counting) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.device = device
        self.clean: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.clean.append(self.weight.grad is None)
        self.device.peak = 2200
        return x * self.weight


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    device = Counting()
    monkeypatch.setattr(devices, "device", lambda name: device)
    return device


def test_the_second_pass_is_measured_without_the_gradients_of_the_first(counting: Counting) -> None:
    module = Watched(counting)
    assert measure_allocation(module, torch.ones(4), mode="train") == MeasuredPeak(16 + 1536, 16 + 1200)
    assert module.clean == [True, True]
    assert module.weight.grad is None


def test_the_cpu_counts_no_requests() -> None:
    assert measure_allocation(nn.Conv2d(4, 4, 1), torch.ones(1, 4, 2, 2), mode="infer").requested_bytes is None


def measured(**changes: Any) -> tuple[dict[str, Any], list[str]]:
    """The values and notes of a tiny case's latency and memory."""
    messages: list[Message] = []
    case = Case("sa", REFERENCE, {}, SHAPE, **changes)
    CaseMeasurement(case, Measure(sample_s=0.01, warmup_s=0), messages.append).run(["memory", "latency"])
    values = [message for message in messages if isinstance(message, Values)]
    notes = [str(note) for each in values for note in each.notes]
    notes += [str(message.note) for message in messages if isinstance(message, MissingColumns) and message.note]
    return {k: v for each in values for k, v in each.values.items()}, notes


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(("host", "bound"), [(0.2, False), (0.95, True)])
def test_the_time_to_enqueue_is_beside_the_devices(monkeypatch: pytest.MonkeyPatch, host: float, bound: bool) -> None:
    monkeypatch.setattr("ctxbench.metrics.latency.host_ms", lambda step, synchronize: host)
    values, warnings = measured()
    for mode in ("infer", "train"):
        assert values[f"latency_{mode}_ms"] == pytest.approx(1.0)
        assert values[f"latency_{mode}_host_ms"] == host
        assert any(text.startswith("launch-bound") and f"latency_{mode}_ms" in text for text in warnings) is bound
        assert values[f"memory_{mode}_requested_bytes"] > 0


def test_the_hosts_time_is_that_until_the_pass_returns() -> None:
    log: list[str] = []

    def step() -> None:
        log.append("pass")
        time.sleep(0.002)

    assert launch.host_ms(step, lambda: log.append("sync")) >= 2
    assert log == ["sync", "pass"] * launch.HOST_PASSES + ["sync"]


def test_the_cpu_has_no_host_beside_it() -> None:
    values, warnings = measured()
    assert "latency_infer_host_ms" not in values
    assert not any("launch-bound" in text for text in warnings)


@pytest.mark.usefixtures("counting")
def test_a_graph_is_of_inference_only() -> None:
    values, warnings = measured(execution="graph")
    assert values["latency_infer_ms"] == pytest.approx(1.0)
    assert not any("train" in name for name in values)
    assert any(text.startswith("no training with execution 'graph'") for text in warnings)
    assert any("a separate pool" in text for text in warnings)


@pytest.mark.usefixtures("counting")
def test_a_training_row_of_a_graph_is_unsupported() -> None:
    measurement = CaseMeasurement(Case("sa", REFERENCE, {}, SHAPE, execution="graph"), Measure(), lambda message: None)
    measurement.load()
    with pytest.raises(Unsupported, match="an inference only") as raised:
        measurement.first_pass("train")
    assert describe_failure(raised.value).status == "unsupported"


def test_the_cpu_has_no_graphs() -> None:
    with pytest.raises(Unsupported, match="replays a CUDA graph, and cpu is no CUDA device"):
        measured(execution="graph")


def test_a_compilation_that_takes_too_long_is_a_timeout() -> None:
    def compiler() -> None:
        try:
            time.sleep(600)
        except Exception:  # as torch's compiler does with what is raised inside
            pytest.fail("the compiler saw the deadline")

    with pytest.raises(OutOfTime) as raised, compile_deadline(0.01):
        compiler()
    failure = describe_failure(raised.value)
    assert (failure.status, failure.message) == (
        "timeout",
        "still compiling or exporting after 0.01 s (compile_timeout_s)",
    )


def test_an_alarm_that_is_swallowed_rings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiler() -> None:
        with suppress(BaseException):  # as code around an optional import does
            time.sleep(600)
        time.sleep(600)

    monkeypatch.setattr("ctxbench.metrics.compile.AGAIN_S", 0.1)
    with pytest.raises(OutOfTime), compile_deadline(0.01):
        compiler()


def test_the_deadline_ends_with_the_first_pass() -> None:
    with pytest.raises(ValueError, match="mine"), compile_deadline(600):
        raise ValueError("mine")
    with compile_deadline(600):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_each_compiled_case_has_empty_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHES[0], "theirs")
    monkeypatch.delenv(CACHES[1], raising=False)
    with compiler_caches():
        folders = [Path(os.environ[name]) for name in CACHES]
        assert not any(folder.exists() for folder in folders)
        folders[0].mkdir()
    assert os.environ[CACHES[0]] == "theirs"
    assert CACHES[1] not in os.environ
    assert not folders[0].parent.exists()


def test_the_processes_of_a_case_share_what_was_compiled_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHES[0], raising=False)
    plan = Plan(Measure(), ["latency"], kept=tmp_path)
    tasks = [plan.task(Case("sa", REFERENCE, {}, (1, 8, size, size), execution="compile")) for size in (4, 4, 8)]
    assert plan.task(Case("sa", REFERENCE, {}, (1, 8, 4, 4), device="meta", execution="compile")).kept == ""
    folders = []
    for task in tasks:
        with compiler_caches(task.kept):
            folders.append(Path(os.environ[CACHES[0]]))
            folders[-1].mkdir(parents=True, exist_ok=True)
    assert folders[0] == folders[1] != folders[2]
    assert all(folder.exists() and folder.is_relative_to(tmp_path) for folder in folders)
