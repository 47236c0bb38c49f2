"""Background load of the machine: before a measurement, and while a process measured."""

import json
from collections.abc import Mapping
from typing import Any

from ctxbench.base.notes import DISTURBED, Note

# Others' load, in cores, from which a check is warned of.
BUSY = 0.5
# Others' load while a process was timed, as a share of the cores that it may use, from which on its times are not used
# if better ones are available.
OTHERS_LIMIT = 0.1
# So does a control workload that took this many times its usual time: other machines on the same processor are seen in
# no count of this one.
CONTROL_LIMIT = 1.08
# A thread that computes has a core for this share of the time, or others or a container's limit held it up.
ON_CORE_LIMIT = 0.9
# Share of the maximum SM clock below which a GPU under load is warned of.
FULL_CLOCK = 0.9


def disturbed(others_share: float | None) -> bool:
    """Return whether others used more than OTHERS_LIMIT of the cores; not where that is not known."""
    return others_share is not None and others_share > OTHERS_LIMIT


def starved(others_share: float, on_core: float) -> bool:
    """True if a thread that computes was held up: by others on the cores, or with no core for much of the time."""
    return disturbed(others_share) or on_core < ON_CORE_LIMIT


def doubt(others_share: float | None) -> list[Note]:
    """Notes on times that other work disturbed."""
    return [Note(DISTURBED, {"limit": OTHERS_LIMIT})] if disturbed(others_share) else []


def shares_gpu(machine_state: str | None) -> bool:
    """True if other processes computed on the GPU before or after a process was timed; False where unknown."""
    state = json.loads(machine_state) if machine_state else {}
    return any((state.get(when) or {}).get("other_processes") for when in ("before", "after"))


def notes(state: Mapping[str, Any]) -> list[Note]:
    """Notes on a machine that is not idle when a measurement begins, or not at its full clock under load."""
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
