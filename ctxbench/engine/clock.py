"""Clocks that time a block of passes: the CPU's, CUDA's, and one whose times come from a test."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

Step = Callable[[], object]
# A block lasts this many times what timing it costs, so that the clock adds under 0.1 %.
COST_RATIO = 1000
L2_FLUSH_BYTES = 256 * 2**20


class Clock(Protocol):
    """Times blocks of passes and says how much wall time has gone by."""

    def time_block(self, step: Step, passes: int) -> float:
        """Run `step` `passes` times; seconds for the whole block."""
        ...

    def now(self) -> float:
        """Wall time in seconds from an arbitrary start."""
        ...


class CpuClock:
    """The monotonic clock around a block, the garbage collector off."""

    def time_block(self, step: Step, passes: int) -> float:
        with _no_garbage_collection():
            start = time.perf_counter_ns()
            for _ in range(passes):
                step()
            return (time.perf_counter_ns() - start) * 1e-9

    def now(self) -> float:
        return time.monotonic()


class CudaClock:
    """CUDA events around a block on the current stream; optionally the L2 cache is overwritten before each pass.

    With the flush, each pass has its own pair of events, so that the flush is not in the time.
    """

    def __init__(self, device: "torch.device", flush_l2: bool = False) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._flush = torch.empty(L2_FLUSH_BYTES, dtype=torch.int8, device=device) if flush_l2 else None

    def time_block(self, step: Step, passes: int) -> float:
        groups, size = (passes, 1) if self._flush is not None else (1, passes)
        pairs = [(self._event(), self._event()) for _ in range(groups)]
        self._cuda.synchronize(self._device)
        with _no_garbage_collection():
            for start, end in pairs:
                if self._flush is not None:
                    self._flush.zero_()
                start.record()
                for _ in range(size):
                    step()
                end.record()
        self._cuda.synchronize(self._device)
        return float(sum(start.elapsed_time(end) for start, end in pairs)) * 1e-3

    def now(self) -> float:
        return time.monotonic()

    def _event(self) -> "torch.cuda.Event":
        return self._cuda.Event(enable_timing=True)


class FakeClock:
    """Takes each pass's seconds from an iterator, for tests; timing a block costs `cost` seconds on top."""

    def __init__(self, passes: Iterator[float], cost: float = 0.0) -> None:
        self._passes = passes
        self._cost = cost
        self._now = 0.0

    def time_block(self, step: Step, passes: int) -> float:
        seconds = self._cost
        for _ in range(passes):
            step()
            seconds += next(self._passes)
        self._now += seconds
        return seconds

    def now(self) -> float:
        return self._now


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def block_cost(clock: Clock) -> float:
    """Seconds that timing an empty block takes on this clock: the least of twenty tries."""
    return min(clock.time_block(lambda: None, 0) for _ in range(20))
