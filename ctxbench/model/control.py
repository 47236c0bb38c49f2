"""The control workload: fixed work whose time is taken around a case's latencies, and in whose units two times of one
machine can be compared.
"""

import math
from collections.abc import Sequence
from typing import Any

from ctxbench.devices import Device
from ctxbench.devices.clock import Clock
from ctxbench.model.messages import Sample

# Three blocks a case (before, between and after its two latencies) take 0.15 s, ten passes each on a GPU.
BLOCK_S = 0.05
# A sample lasts at least this long, so that neither the timer nor one interruption is much of it.
SAMPLE_S = 0.004
FEWEST = 3
WARM_UP_PASSES = 3
# What samples of it are stored under, beside the modes.
STREAM = "control"


class Control:
    """The control workload on one device; its samples follow each other through all blocks."""

    def __init__(self, device: Device, clock: Clock) -> None:
        self.step = device.control_workload()
        self.clock = clock
        self.samples: list[Sample] = []
        self.start: float | None = None

    def block(self) -> list[Sample]:
        """Warm up, then time the workload for BLOCK_S seconds; every sample so far."""
        pass_s = min(self.clock.time_block(self.step, 1) for _ in range(WARM_UP_PASSES))
        passes = max(1, math.ceil(SAMPLE_S / pass_s))
        begin = self.clock.now()
        self.start = begin if self.start is None else self.start
        count = 0
        while count < FEWEST or self.clock.now() < begin + BLOCK_S:
            ms = self.clock.time_block(self.step, passes) * 1e3 / passes
            self.samples.append(Sample(self.clock.now() - self.start, passes, ms))
            count += 1
        return self.samples


def control_columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """The columns of a record that the samples of all blocks, three or more, fill."""
    from ctxbench.base.statistics import summarise  # imports numpy, which names and columns do not need

    summary = summarise([sample.ms for sample in samples])
    return {"control_ms": summary.median, "control_low_ms": summary.low, "control_high_ms": summary.high}
