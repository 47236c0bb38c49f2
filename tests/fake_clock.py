"""A clock whose times come from the test."""

from collections.abc import Iterator

from ctxbench.devices.clock import Step


class FakeClock:
    """Takes each pass's seconds from an iterator; timing a block costs `cost` seconds on top."""

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
