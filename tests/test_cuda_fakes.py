"""The CUDA paths on a fake device: which events bracket which passes, what NVML is asked, how energy is divided."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

from ctxbench import machine_load
from ctxbench.devices import NotMeasurable, device
from ctxbench.devices.cuda import CudaClock
from ctxbench.metrics.energy import WINDOW_S, measure_energy

CUDA = torch.device("cuda", 0)


class FakeCuda:
    """Stands in for torch.cuda: one millisecond passes on the device for each thing that is queued."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.device_ms = 0.0

    def synchronize(self, device: torch.device) -> None:
        self.log.append("sync")

    def _sleep(self, cycles: int) -> None:
        self.work("delay")

    def Event(self, enable_timing: bool) -> Any:  # torch's name
        assert enable_timing
        cuda = self

        class Event:
            at = 0.0

            def record(self) -> None:
                cuda.log.append("event")
                self.at = cuda.device_ms

            def elapsed_time(self, end: "Event") -> float:
                assert cuda.log[-1] == "sync", "events are read after the device is done"
                return end.at - self.at

        return Event()

    def work(self, name: str) -> None:
        self.log.append(name)
        self.device_ms += 1.0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_one_pair_of_events_brackets_a_block(cuda: FakeCuda) -> None:
    seconds = CudaClock(CUDA).time_block(lambda: cuda.work("pass"), 3)
    assert cuda.log == ["sync", "delay", "event", "pass", "pass", "pass", "event", "sync"]
    assert seconds == pytest.approx(3e-3)


def test_a_flush_is_before_each_pass_and_outside_its_time(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = SimpleNamespace(zero_=lambda: cuda.work("flush"))
    monkeypatch.setattr(torch, "empty", lambda size, **options: flush)
    seconds = CudaClock(CUDA, flush_l2=True).time_block(lambda: cuda.work("pass"), 2)
    assert cuda.log == ["sync", "delay", *["flush", "event", "pass", "event"] * 2, "sync"]
    assert seconds == pytest.approx(2e-3)


class FakeNvml:
    """Stands in for pynvml: a board that draws 100 W while `clock` runs."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 0

    def __init__(self, clock: FakeClock | None = None, others: tuple[int, ...] = ()) -> None:
        self.clock, self.others, self.opened = clock, others, 0
        self.index: int | None = None

    def nvmlInit(self) -> None:  # NVML's name, like those below
        self.opened += 1

    def nvmlShutdown(self) -> None:  # NVML's name
        self.opened -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # NVML's name
        self.index = index
        return "board"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # NVML's name
        assert self.clock is not None
        return round(100 * self.clock.now() * 1000)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # NVML's name
        return (1980, 3201)[kind]

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:  # NVML's name
        return 41

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # NVML's name
        return 76_500

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # NVML's name
        return [SimpleNamespace(pid=pid) for pid in (os.getpid(), *self.others)]


def test_energy_is_the_counters_difference_by_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(iter(lambda: 0.01, None))
    nvml = FakeNvml(clock)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    passes = 0

    def step() -> None:
        nonlocal passes
        passes += 1

    assert measure_energy(step, clock, device("cuda")) == pytest.approx(1.0)  # 100 W for 10 ms
    assert passes == 1 + round(WINDOW_S / 0.01)
    assert nvml.opened == 0


def test_energy_needs_nvml_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(iter(lambda: 0.01, None))
    with pytest.raises(NotMeasurable, match="NVIDIA GPUs only"):
        measure_energy(lambda: None, clock, device("cpu"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotMeasurable, match="pip install nvidia-ml-py"):
        measure_energy(lambda: None, clock, device("cuda"))


def test_the_state_names_clocks_temperature_and_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(others=(4242,))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    state = device("cuda:1").state()
    assert nvml.index == 1
    assert state == {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "temperature_c": 41,
        "power_w": 76.5,
        "other_processes": [4242],
    }
    assert machine_load.warnings({**state, "busy_cores": 0.1}) == ["1 other process(es) compute on the GPU"]


def test_without_nvml_the_state_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in device("cuda").state()["nvml"]
    assert device("cpu").state() == {}


def test_a_busy_machine_is_warned_of() -> None:
    assert machine_load.warnings({"busy_cores": 0.4}) == []
    assert machine_load.warnings({"busy_cores": 1.26}) == ["the machine was not at rest: others kept 1.3 cores busy"]


def test_busy_cores_come_from_the_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 37.5)
    monkeypatch.setattr("psutil.cpu_count", lambda: 4)
    assert machine_load.busy_cores() == 1.5
