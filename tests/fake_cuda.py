"""Stand-ins for torch.cuda with two GPUs and for NVML; the fixtures `cuda` and `nvml` put them in their places."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from fake_clock import FakeClock

CUDA = torch.device("cuda", 0)
UUIDS = ("aaaaaaaa-0000", "bbbbbbbb-1111")


class FakeStream:
    """Work in order on one device; `ms` is the device's time when the last of it is done."""

    def __init__(self, device: int, name: str = "main", log: list[str] | None = None) -> None:
        self.device, self.name, self.log, self.ms = device, name, [] if log is None else log, 0.0

    def wait_stream(self, other: "FakeStream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


class FakeCuda:
    """Stands in for torch.cuda with two GPUs: a current device, streams of each, one millisecond for each thing queued.

    As with CUDA, an event without a stream is recorded on the current stream of the current device, work goes to the
    current stream of the device that it is for, and a device without work has not moved on.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = 0
        self.streams = [FakeStream(0, log=self.log), FakeStream(1, log=self.log)]
        self.stats: dict[str, int] = {}

    def set_device(self, device: int) -> None:
        self.log.append(f"device {device}")
        self.current = device

    @contextmanager
    def device(self, device: int) -> Iterator[None]:
        before, self.current = self.current, device
        yield
        self.current = before

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.streams[stream.device] = self.streams[stream.device], stream
        yield
        self.streams[stream.device] = before

    def current_stream(self, device: torch.device | None = None) -> FakeStream:
        return self.streams[self._index(device)]

    def Stream(self, device: torch.device) -> FakeStream:  # torch's name
        return FakeStream(self._index(device), "side", self.log)

    def CUDAGraph(self) -> Any:  # torch's name
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    def graph(self, graph: Any) -> Any:
        """Runs nothing of what it captures but the host's part."""
        return self.stream(FakeStream(self.current, "capture"))

    def memory_stats(self, device: torch.device) -> dict[str, int]:
        return self.stats

    def synchronize(self, device: torch.device) -> None:
        self.log.append("sync")

    def is_initialized(self) -> bool:
        return True

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(uuid=UUIDS[index], name=f"GPU {index}", total_memory=80 * 2**30, major=9, minor=0)

    def _sleep(self, cycles: int) -> None:
        self.work("delay")

    def Event(self, enable_timing: bool) -> Any:  # torch's name
        assert enable_timing
        cuda = self

        class Event:
            at: float
            device: int

            def record(self, stream: FakeStream | None = None) -> None:
                stream = stream or cuda.current_stream()
                cuda.log.append("event")
                self.at, self.device = stream.ms, stream.device

            def elapsed_time(self, end: "Event") -> float:
                assert cuda.log[-1] == "sync", "events are read after the device is done"
                assert end.device == self.device, "two events of one time are on one device"
                return end.at - self.at

        return Event()

    def work(self, name: str, device: torch.device = CUDA) -> None:
        self.log.append(name)
        self.current_stream(device).ms += 1.0

    def _index(self, device: torch.device | None) -> int:
        return self.current if device is None or device.index is None else device.index


class NVMLError(Exception):  # NVML's name, like that below
    """Exception of NVML, by a class for each code."""


class NVMLError_NotSupported(NVMLError):
    """A value that this board, this driver or this container does not tell."""


class FakeNvml:
    """Stands in for pynvml: a board that draws 100 W while `clock` runs; what is in `lacking` is not supported."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 0

    def __init__(
        self, clock: FakeClock | None = None, others: tuple[int, ...] = (), lacking: tuple[str, ...] = ()
    ) -> None:
        self.clock, self.lacking, self.users = clock, lacking, 0
        self.pids: tuple[int, ...] = (os.getpid(), *others)
        self.reasons = 0x5
        self.board: int | str | None = None
        self.boards = [f"GPU-{uuid}" for uuid in UUIDS]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.lacking:
            raise NVMLError_NotSupported
        return super().__getattribute__(name)

    def nvmlInit(self) -> None:  # NVML's name, like those below
        self.users += 1

    def nvmlShutdown(self) -> None:  # NVML's name
        self.users -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # NVML's name
        return "580.95"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # NVML's name
        self.board = index
        return "board"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # NVML's name
        if uuid not in self.boards:
            raise NVMLError("Not Found")
        self.board = uuid
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # NVML's name
        assert self.clock is not None
        return round(100 * self.clock.now() * 1000)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # NVML's name
        return (1410, 3201)[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:  # NVML's name
        return (1980, 3201)[kind]

    def nvmlDeviceGetApplicationsClock(self, handle: str, kind: int) -> int:  # NVML's name
        return 1830

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:  # NVML's name
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # NVML's name
        return self.reasons | 0x40

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:  # NVML's name
        return 41

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # NVML's name
        return 76_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # NVML's name
        return 700_000

    def nvmlDeviceGetPersistenceMode(self, handle: str) -> int:  # NVML's name
        return 1

    def nvmlDeviceGetComputeMode(self, handle: str) -> int:  # NVML's name
        return 3

    def nvmlDeviceIsMigDeviceHandle(self, handle: str) -> int:  # NVML's name
        return int(handle.startswith("MIG-"))

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # NVML's name
        return [0, 1]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # NVML's name
        return [SimpleNamespace(pid=pid) for pid in self.pids]
