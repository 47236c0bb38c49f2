"""Energy of a pass and idle power, from the counter of a board that draws 100 W."""

import sys
from collections.abc import Callable

import pytest
from fake_clock import FakeClock
from fake_cuda import FakeCuda, FakeNvml

from ctxbench.devices import NotMeasurable, device
from ctxbench_science.energy.metric import BLOCK_S, IDLE_S, SETTLE_S, WINDOW_S, idle_power, measure_energy


def test_energy_is_the_counters_difference_by_pass(nvml: Callable[..., FakeNvml], cuda: FakeCuda) -> None:
    clock = FakeClock(iter(lambda: 0.01, None))
    library = nvml(clock)
    passes = 0

    def step() -> None:
        nonlocal passes
        passes += 1

    assert measure_energy(step, clock, device("cuda")) == pytest.approx(1.0)  # 100 W for 10 ms
    assert clock.now() >= WINDOW_S >= 10
    assert passes * 0.01 == pytest.approx(WINDOW_S + 0.01, abs=BLOCK_S + 0.02)
    assert library.users == 0


def test_energy_lasts_its_window_where_the_first_pass_is_slow(nvml: Callable[..., FakeNvml], cuda: FakeCuda) -> None:
    clock = FakeClock(iter([4.0, *[0.01] * 2000]))
    nvml(clock)
    assert measure_energy(lambda: None, clock, device("cuda")) == pytest.approx(1.0)
    assert clock.now() >= 4 + WINDOW_S


def test_idle_power_is_the_counters_difference_over_time(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(iter(lambda: 1.0, None))
    nvml(clock)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.time_block(lambda: None, round(seconds))

    monkeypatch.setattr("time.sleep", sleep)
    assert idle_power(clock, device("cuda")) == pytest.approx(100)
    assert slept == [SETTLE_S, IDLE_S]
    assert cuda.log == ["sync"]


def test_energy_needs_nvml_and_a_gpu_that_counts(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> None:
    clock = FakeClock(iter(lambda: 0.01, None))
    with pytest.raises(NotMeasurable, match="NVIDIA GPUs only"):
        measure_energy(lambda: None, clock, device("cpu"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotMeasurable, match="pip install nvidia-ml-py"):
        measure_energy(lambda: None, clock, device("cuda"))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(clock, lacking=("nvmlDeviceGetTotalEnergyConsumption",)))
    with pytest.raises(NotMeasurable, match="does not tell its energy: NotSupported"):
        measure_energy(lambda: None, clock, device("cuda"))
