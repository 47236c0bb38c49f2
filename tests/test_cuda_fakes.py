"""The CUDA paths on a fake device: which events bracket which passes, what NVML is asked, how energy is divided."""

import os
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_clock import FakeClock
from fake_cuda import CUDA, UUIDS, FakeCuda, FakeNvml, FakeStream

from ctxbench import devices
from ctxbench.base import load as machine_load
from ctxbench.base.clocks import Machine
from ctxbench.base.errors import UsageError
from ctxbench.devices import Device, NotMeasurable, device
from ctxbench.devices.cuda import Cuda, CudaClock
from ctxbench.metrics.matmul import matmul_rate
from ctxbench.results.environment import differences


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


@pytest.mark.parametrize("current", [0, 1])
def test_the_events_are_on_the_device_that_works(cuda: FakeCuda, current: int) -> None:
    second = torch.device("cuda", 1)
    with cuda.device(current):
        seconds = CudaClock(second).time_block(lambda: cuda.work("pass", second), 3)
    assert seconds == pytest.approx(3e-3)


def test_the_events_are_on_the_stream_that_works(cuda: FakeCuda) -> None:
    with cuda.stream(FakeStream(0)):
        assert CudaClock(CUDA).time_block(lambda: cuda.work("pass"), 3) == pytest.approx(3e-3)


@pytest.mark.parametrize(("name", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_the_device_is_the_current_one_before_any_flag_is_set(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, name: str, index: int
) -> None:
    monkeypatch.setattr(Device, "set_flags", lambda self, *flags: cuda.log.append("flags"))
    device(name).set_flags("float32", None, False)
    assert cuda.log == [f"device {index}", "flags"]


STATE = {
    "sm_clock_mhz": 1410,
    "sm_clock_max_mhz": 1980,
    "sm_clock_application_mhz": 1830,
    "memory_clock_mhz": 3201,
    "memory_clock_max_mhz": 3201,
    "throttle_reasons": ["idle", "power cap"],
    "temperature_c": 41,
    "power_w": 76.5,
    "power_limit_w": 700.0,
}


def test_the_energy_of_a_board_is_not_that_of_one_mig_instance(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = nvml(FakeClock(iter(lambda: 0.01, None)))
    monkeypatch.setattr(library, "nvmlDeviceGetMigMode", lambda handle: [1, 1], raising=False)
    with pytest.raises(NotMeasurable, match="MIG mode counts the energy of all its instances"):
        device("cuda").energy_j()


def test_the_state_names_clocks_temperature_and_other_processes(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = nvml(others=(4242, os.getppid()))
    monkeypatch.setattr("psutil.pid_exists", lambda pid: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    state = device("cuda:1").state()
    assert library.board == f"GPU-{UUIDS[1]}"
    assert state == {**STATE, "other_processes": [4242]}
    assert told({**state, "busy_cores": 0.1}) == ["1 other process(es) compute on the GPU"]


@pytest.mark.parametrize(
    ("visible", "board"), [("3,1", 1), ("GPU-aaaaaaaa-0000, GPU-bbbbbbbb-1111", "GPU-bbbbbbbb-1111"), ("", 1)]
)
def test_without_a_uuid_of_torch_the_state_says_how_the_board_was_found(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, visible: str, board: int | str
) -> None:
    library = nvml()
    monkeypatch.setattr(cuda, "get_device_properties", lambda index: SimpleNamespace())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert "torch does not tell the UUID" in device("cuda:1").state()["found"]
    assert library.board == board


def test_a_mig_instance_is_found_and_what_it_does_not_tell_has_a_reason(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda
) -> None:
    library = nvml(lacking=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "nvmlDeviceGetEnforcedPowerLimit"))
    library.boards = [f"MIG-{uuid}" for uuid in UUIDS]
    state = device("cuda").state()
    assert library.board == f"MIG-{UUIDS[0]}"
    reason = dict.fromkeys(("temperature_c", "power_w", "power_limit_w"), "NotSupported")
    assert state == {**{k: v for k, v in STATE.items() if k not in reason}, "other_processes": [], "unknown": reason}


def test_every_value_may_be_unsupported(nvml: Callable[..., FakeNvml], cuda: FakeCuda) -> None:
    nvml(lacking=tuple(name for name in vars(FakeNvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name))
    state = device("cuda").state()
    assert state == {"unknown": dict.fromkeys([*STATE, "other_processes"], "NotSupported")}
    assert told({**state, "under_load": True}) == []


@pytest.mark.parametrize("lacking", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_a_lost_board_is_a_reason(nvml: Callable[..., FakeNvml], cuda: FakeCuda, lacking: str) -> None:
    nvml(lacking=(lacking,))
    assert device("cuda").state()["nvml"].endswith(": NotSupported")


def test_an_older_driver_has_throttle_reasons_under_their_former_name(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda
) -> None:
    nvml(lacking=("nvmlDeviceGetCurrentClocksEventReasons",)).reasons = 0x800
    assert device("cuda").state()["throttle_reasons"] == ["hardware thermal slowdown", "0x800"]


@pytest.mark.parametrize("pids", [(), (1,), (os.getpid(), 2**30)])
def test_the_hosts_process_numbers_are_no_other_processes(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, pids: tuple[int, ...]
) -> None:
    nvml().pids = pids
    state = device("cuda").state()
    assert "other_processes" not in state
    assert state["unknown"] == {"other_processes": "NVML's process numbers are not those of this container"}
    assert told(state) == []


def test_without_nvml_the_state_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in device("cuda").state()["nvml"]
    assert device("cpu").state() == {}
    assert device("cpu").state_under_load(lambda: None) == {}


def test_the_state_under_load_is_sampled_while_passes_run(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = nvml()
    clock = FakeClock(iter(lambda: 0.001, None))
    monkeypatch.setattr(Cuda, "clock", lambda self, flush_l2=False: clock)
    passes = 0
    seen: list[int] = []

    def step() -> None:
        nonlocal passes
        passes += 1

    def power(handle: str) -> int:
        """Answers after ten more passes: they run while NVML is asked."""
        seen.append(passes)
        while passes < seen[0] + 10:
            pass
        return 76_500

    monkeypatch.setattr(library, "nvmlDeviceGetPowerUsage", power, raising=False)
    state = device("cuda").state_under_load(step)
    assert state == {"under_load": True, **STATE, "other_processes": []}
    assert seen[0] >= 300
    assert told(state) == ["the GPU ran at 1410 of 1830 MHz (77%) under load: idle, power cap"]
    assert told({**state, "sm_clock_mhz": 1660}) == []
    assert told({**state, "under_load": False}) == []


def test_the_matmul_rate_of_a_gpu_is_the_median_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "matmul_size", 8)
    monkeypatch.setattr(Cuda, "torch", torch.device("cpu"))
    slow, single = 0.4, 0.02  # the first product; one that was timed alone
    clock = FakeClock(iter([slow, single, *[0.01] * 10, *[0.001] * 5, *[0.01] * 200]))
    assert matmul_rate(clock, device("cuda"), torch.float32) == pytest.approx(8**3 / 0.01)
    clock = FakeClock(iter([slow, 0.02, 0.01, 0.005, *[0.02] * 100]))
    assert matmul_rate(clock, device("cpu"), torch.float32) == pytest.approx(1024**3 / 0.005)


def told(state: Mapping[str, Any]) -> list[str]:
    return [str(note) for note in machine_load.notes(state)]


def test_a_busy_machine_is_warned_of() -> None:
    assert told({"busy_cores": 0.4}) == []
    assert told({"busy_cores": 1.26}) == ["the machine was not idle: 1.3 cores in use by other processes"]


def test_busy_cores_come_from_the_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 37.5)
    monkeypatch.setattr("psutil.cpu_count", lambda: 4)
    assert Machine().busy_cores() == 1.5


ENVIRONMENT = {
    "cpu": "a processor",
    "cpu_usable": 2,
    "torch_threads": 2,
    "packages": {"torch": "2.13"},
    "gpus": [{"name": "GPU 0", "power_limit_w": 700.0, "mig_mode": False}],
    "driver": "580.95",
    "cudnn": 91002,
    "allocator_config": None,
}


def test_the_environment_has_each_gpus_settings_and_torchs_variables(
    nvml: Callable[..., FakeNvml], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(lacking=("nvmlDeviceGetMigMode",))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(cuda, "init", lambda: None, raising=False)
    monkeypatch.setattr(cuda, "device_count", lambda: 2, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = Cuda.fingerprint()
    gpus = found.pop("gpus")
    assert [gpu["uuid"] for gpu in gpus] == [*UUIDS]
    assert gpus[0] == {
        "name": "GPU 0",
        "memory_bytes": 80 * 2**30,
        "capability": "9.0",
        "uuid": UUIDS[0],
        "power_limit_w": 700.0,
        "persistence_mode": True,
        "compute_mode": "exclusive process",
        "unknown": {"mig_mode": "NotSupported"},
    }
    assert found == {
        "driver": "580.95",
        "cuda_visible_devices": "0,1",
        "cudnn": 91002,
        "allocator_config": "expandable_segments:True",
    }


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"driver": "570.1"}, "driver: 570.1 then, 580.95 now"),
        ({"cudnn": 90100}, "cuDNN: 90100 then, 91002 now"),
        ({"allocator_config": "a:1"}, "allocator configuration: a:1 then, None now"),
        ({"gpus": [{"name": "GPU 0", "power_limit_w": 500.0}]}, "power limit (W): 500.0 then, 700.0 now"),
        ({"gpus": [{"name": "GPU 0", "mig_mode": True}]}, "MIG mode: True then, False now"),
        ({"gpus": [{"name": "GPU 1"}]}, "gpu: GPU 1 then, GPU 0 now"),
    ],
)
def test_two_environments_differ_in_what_measurements_depend_on(change: dict[str, Any], phrase: str) -> None:
    assert differences({**ENVIRONMENT, **change}, ENVIRONMENT) == [phrase]


def test_an_older_run_may_lack_what_is_compared() -> None:
    older = {name: value for name, value in ENVIRONMENT.items() if name not in ("cudnn", "allocator_config")}
    older["gpus"] = [{"name": "GPU 0", "memory_bytes": 1, "capability": "9.0"}]
    assert differences(older, ENVIRONMENT) == differences(ENVIRONMENT, older) == []


def test_torch_with_cuda_but_without_a_driver_says_so(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check")

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(cuda, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = {**Cuda.fingerprint(), "torch_build": {"cuda": "12.8"}}
    assert found["cuda_error"] == "Found no NVIDIA driver on your system."
    assert devices.auto(found) == "cpu"
    with pytest.raises(UsageError, match=r"torch was built with CUDA 12\.8, but no driver answers; use --device cpu"):
        devices.check("cuda", found)


def test_a_driver_without_a_gpu_says_what_torch_says() -> None:
    found = {"torch_build": {"cuda": "12.8"}, "driver": "580", "cuda_error": "No CUDA GPUs are available", "gpus": []}
    sentence = "torch was built with CUDA 12.8, but: No CUDA GPUs are available"
    assert devices.seen("cuda", found) == sentence
    assert devices.seen("cuda", {**found, "cuda_visible_devices": ""}) == f"{sentence} (CUDA_VISIBLE_DEVICES is '')"


def test_the_eighth_gpu_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"device 'cuda:7' was asked for, but torch sees 1 GPU\(s\)"):
        devices.check("cuda:7", ENVIRONMENT)
    devices.check("cuda:0", ENVIRONMENT)
