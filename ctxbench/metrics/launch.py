"""Host's share of a pass: the time to enqueue its kernels, beside the time that the device takes for them."""

import statistics
from collections.abc import Callable

from ctxbench.base import clocks as this_machine
from ctxbench.devices.clock import Step

HOST_PASSES = 11
# Where the host is the slower side, both times are the host's, equal up to noise.
LAUNCH_SHARE = 0.9


def host_ms(step: Step, synchronize: Callable[[], None]) -> float:
    """Milliseconds until `step` (one pass) has returned on an idle device: the median of `HOST_PASSES` passes."""
    times = []
    for _ in range(HOST_PASSES):
        synchronize()
        times.append(this_machine.here.time_block(step, 1) * 1e3)
    synchronize()
    return statistics.median(times)
