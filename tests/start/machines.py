"""The machines that tests run on in place of the real one, so that none judges how fast or how busy that one is."""

import itertools
import os
import sys
from collections.abc import Callable

from ctxbench.base import clocks as this_machine

# Names one of MACHINES, in this process and in all that it starts.
VARIABLE = "CTXBENCH_TEST_MACHINE"
PASS_S = 0.02
# The control workload and the large product, whose results nobody asks for, take most of the time of a small block's
# process.
OF_THE_MACHINE = ("ctxbench.devices.base", "ctxbench.metrics.matmul")
# What the timing of a block costs on top.
COST_S = 1e-7
# What PyTorch's profiler takes beside a block: a profile then has few passes.
PROFILER_S = 0.2


class Quiet(this_machine.Machine):
    """A pass takes 20 ms; nobody else computes; a limit is reached after 20 times its seconds.

    Passes and processes differ by up to 0.1 %, so that no interval is empty.
    """

    pace = 20.0

    def __init__(self) -> None:
        self._now_s = 0.0
        self._blocks = itertools.count()

    def time_block(self, step: Callable[[], object], passes: int) -> float:
        for _ in range(passes if getattr(step, "__module__", "") not in OF_THE_MACHINE else 0):
            step()
        seconds = COST_S + passes * PASS_S * self._factor(next(self._blocks))
        is_profiled = getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False)
        self._now_s += seconds + PROFILER_S * is_profiled
        return seconds

    def time_work(self, step: Callable[[], object], passes: int) -> this_machine.WallAndCore:
        seconds = self.time_block(step, passes)
        return this_machine.WallAndCore(seconds, seconds, 0)

    def _factor(self, block: int) -> float:
        return 1 + 5e-4 * (block * 7 % 11 / 11 + os.getpid() * 7 % 13 / 13)

    def now(self) -> float:
        return self._now_s

    def busy_cores(self) -> float:
        return 0.0

    def others(self) -> Callable[[], float]:
        return lambda: 0.0

    def on_core(self) -> Callable[[], float]:
        return lambda: 1.0


class Restless(Quiet):
    """Others use all cores, all the time, and a pass takes a fifth longer after every eight blocks."""

    def _factor(self, block: int) -> float:
        return 1.2 ** (block // 8 % 12)

    def busy_cores(self) -> float:
        return float(os.cpu_count() or 1)

    def others(self) -> Callable[[], float]:
        return lambda: 1.0

    def on_core(self) -> Callable[[], float]:
        return lambda: 0.4


MACHINES = {"real": this_machine.Machine, "quiet": Quiet, "restless": Restless}


def take_place() -> None:
    """Put the machine that the environment names in the place of the real one; but there no file waits for a disk."""
    name = os.environ.get(VARIABLE, "real")
    this_machine.here = MACHINES[name]()
    if name != "real":
        os.fsync = lambda fd: None
