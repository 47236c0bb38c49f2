"""How busy others keep the machine: before a measurement, and while a process measures."""

import contextlib
import json
import os
from collections.abc import Mapping
from time import monotonic  # bound before a module can replace it
from typing import Any

from ctxbench.notes import DISTURBED, Note

WINDOW_S = 0.1
# Others' load, in cores, from which a check is warned of.
BUSY = 0.5
# Others' load while a process was timed, as a share of the cores that it may use, from which on its times are not used
# if better ones can be had.
OTHERS_LIMIT = 0.1
# So does a control workload that took this many times its usual time: other machines on the same processor are seen in
# no count of this one.
CONTROL_LIMIT = 1.08
# Share of the maximum SM clock below which a GPU under load is warned of.
FULL_CLOCK = 0.9


def busy_cores() -> float:
    """How many cores were at work over a tenth of a second. Call while this process is idle."""
    import psutil

    return round(psutil.cpu_percent(interval=WINDOW_S) / 100 * (psutil.cpu_count() or 1), 2)


class Others:
    """What others use of the cores that this process may use: the processor time of these cores without its own."""

    def __init__(self) -> None:
        self._start, self._busy, self._own = monotonic(), _machine_s(), _own_s()

    def share(self) -> float:
        """Their share of these cores since this was made."""
        seconds = (monotonic() - self._start) * len(_usable())
        others = (_machine_s() - self._busy) - (_own_s() - self._own)
        return round(max(others, 0.0) / seconds, 4)


def disturbed(others_share: float | None) -> bool:
    """Whether others used more than OTHERS_LIMIT of the cores; not where that is not known."""
    return others_share is not None and others_share > OTHERS_LIMIT


def doubt(others_share: float | None) -> list[Note]:
    """What a reader must know of times that other work disturbed."""
    return [Note(DISTURBED, {"limit": OTHERS_LIMIT})] if disturbed(others_share) else []


def shares_gpu(machine_state: str | None) -> bool:
    """Whether other processes computed on the GPU before or after a process was timed; not where that is not known."""
    state = json.loads(machine_state) if machine_state else {}
    return any((state.get(when) or {}).get("other_processes") for when in ("before", "after"))


def _usable() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _machine_s() -> float:
    """Processor seconds of these cores since boot, those that the hypervisor took included."""
    import psutil

    cores = psutil.cpu_times(percpu=True)
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(float(getattr(cores[core], name, 0.0)) for core in _usable() for name in names)


def _own_s() -> float:
    """Processor seconds of this process and of what it started, such as the workers of a compiler."""
    import psutil

    times = os.times()
    seconds = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += child.cpu_times().user + child.cpu_times().system
    return seconds


def notes(state: Mapping[str, Any]) -> list[Note]:
    """Notes on a machine that is not at rest when a measurement begins, or not at its full clock under load."""
    found = []
    if state.get("other_processes"):
        found.append(Note("gpu_shared", {"processes": len(state["other_processes"])}))
    if state.get("busy_cores", 0) > BUSY:
        found.append(Note("busy_machine", {"cores": state["busy_cores"]}))
    return found + (_slow_clock(state) if state.get("under_load") else [])


def _slow_clock(state: Mapping[str, Any]) -> list[Note]:
    """A note if the SM clock is below its share of the maximum: that of applications where the GPU has one."""
    clock = state.get("sm_clock_mhz")
    limits = [state[name] for name in ("sm_clock_application_mhz", "sm_clock_max_mhz") if state.get(name)]
    if clock is None or not limits or clock >= FULL_CLOCK * min(limits):
        return []
    reasons = [*state.get("throttle_reasons", ())] or ["the GPU does not tell why"]
    share = clock / min(limits)
    return [Note("slow_clock", {"mhz": clock, "limit_mhz": min(limits), "share": share, "reasons": reasons})]
