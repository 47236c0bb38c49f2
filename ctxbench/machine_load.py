"""How busy the machine is, asked while this process is idle."""

from collections.abc import Mapping
from typing import Any

WINDOW_S = 0.1
# Others' load, in cores, from which a measurement is warned of.
BUSY = 0.5
# Share of the maximum SM clock below which a GPU under load is warned of.
FULL_CLOCK = 0.9


def busy_cores() -> float:
    """How many cores were at work over a tenth of a second. Call while this process is idle."""
    import psutil

    return round(psutil.cpu_percent(interval=WINDOW_S) / 100 * (psutil.cpu_count() or 1), 2)


def warnings(state: Mapping[str, Any]) -> list[str]:
    """Sentences for a machine that is not at rest when a measurement begins, or not at its full clock under load."""
    notes = []
    if state.get("other_processes"):
        notes.append(f"{len(state['other_processes'])} other process(es) compute on the GPU")
    if state.get("busy_cores", 0) > BUSY:
        notes.append(f"the machine was not at rest: others kept {state['busy_cores']:.1f} cores busy")
    return notes + (_slow_clock(state) if state.get("under_load") else [])


def _slow_clock(state: Mapping[str, Any]) -> list[str]:
    """A sentence if the SM clock is below its share of the maximum: that of applications where the GPU has one."""
    clock = state.get("sm_clock_mhz")
    limits = [state[name] for name in ("sm_clock_application_mhz", "sm_clock_max_mhz") if state.get(name)]
    if clock is None or not limits or clock >= FULL_CLOCK * min(limits):
        return []
    reasons = ", ".join(state.get("throttle_reasons", ())) or "the GPU does not tell why"
    return [f"the GPU ran at {clock} of {min(limits)} MHz ({clock / min(limits):.0%}) under load: {reasons}"]
