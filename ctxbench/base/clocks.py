"""The one place that reads this machine's clocks and load. Tests put another machine in the place of `here`."""

import contextlib
import math
import os
import sys
from collections.abc import Callable
from time import monotonic, perf_counter_ns, thread_time  # bound before a module can replace them
from typing import NamedTuple

from ctxbench.base.garbage import collector_off

# Whether a process is forked that has imported torch, and its malloc and its limit of memory can be set. macOS forks,
# too, but its libraries may fail in a copy of a process that has loaded them.
FORKS = sys.platform == "linux"
# Seconds over which `busy_cores` looks.
WINDOW_S = 0.1


class WallAndCore(NamedTuple):
    """Seconds of the wall, and of a core, for a block of passes; `waits`: how often the thread gave up its core itself.

    `waits` is NaN where the system does not count it.
    """

    wall_s: float
    cpu_s: float
    waits: float


class Machine:
    """This machine: a clock for passes, one for limits, and what others do meanwhile."""

    # Seconds of wall time in a second of `wall_s`, which is what limits and budgets are held against.
    pace = 1.0

    def time_block(self, step: Callable[[], object], passes: int) -> float:
        """Run `step` `passes` times, the garbage collector off; seconds for the whole block."""
        with collector_off():
            start = perf_counter_ns()
            for _ in range(passes):
                step()
            return (perf_counter_ns() - start) * 1e-9

    def time_work(self, step: Callable[[], object], passes: int) -> WallAndCore:
        """The same, with the processor's time of this thread, and how often it waited."""
        waits, cpu = _waits(), thread_time()
        wall = self.time_block(step, passes)
        return WallAndCore(wall, thread_time() - cpu, _waits() - waits)

    def now(self) -> float:
        """Seconds from an arbitrary start, for measurements."""
        return monotonic()

    def wall_s(self) -> float:
        """Seconds from an arbitrary start, for limits and budgets."""
        return monotonic() / self.pace

    def busy_cores(self) -> float:
        """Number of busy cores over a tenth of a second. Call while this process is idle."""
        import psutil

        return round(psutil.cpu_percent(interval=WINDOW_S) / 100 * (psutil.cpu_count() or 1), 2)

    def others(self) -> Callable[[], float]:
        """A function that says which share of the cores of this process others have used since this call."""
        start, busy, own = monotonic(), _machine_s(), _own_s()

        def share() -> float:
            seconds = (monotonic() - start) * len(usable_cores())
            used = (_machine_s() - busy) - (_own_s() - own)
            return round(max(used, 0.0) / seconds, 4)

        return share

    def on_core(self) -> Callable[[], float]:
        """A function that says for which share of the time since this call this thread had a core."""
        start, own = monotonic(), thread_time()
        return lambda: round((thread_time() - own) / (monotonic() - start), 4)


here = Machine()


def _waits() -> float:
    """Count how often this thread gave up its core itself: it slept, waited for another thread, or read a disk."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (ImportError, AttributeError):  # Linux alone counts it
        return math.nan


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _machine_s() -> float:
    """Processor seconds of these cores since boot, those that the hypervisor took included."""
    import psutil

    cores = psutil.cpu_times(percpu=True)
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(float(getattr(cores[core], name, 0.0)) for core in usable_cores() for name in names)


def _own_s() -> float:
    """Processor seconds of this process and of what it started, such as the workers of a compiler."""
    import psutil

    times = os.times()
    seconds = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += child.cpu_times().user + child.cpu_times().system
    return seconds
