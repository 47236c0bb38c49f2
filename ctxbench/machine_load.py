"""How busy the machine is, asked while this process is idle."""

from collections.abc import Mapping
from typing import Any

WINDOW_S = 0.1
# Others' load, in cores, from which a measurement is warned of.
BUSY = 0.5


def busy_cores() -> float:
    """How many cores were at work over a tenth of a second. Call while this process is idle."""
    import psutil

    return round(psutil.cpu_percent(interval=WINDOW_S) / 100 * (psutil.cpu_count() or 1), 2)


def warnings(state: Mapping[str, Any]) -> list[str]:
    """Sentences for a machine that is not at rest when a measurement begins."""
    notes = []
    if state.get("other_processes"):
        notes.append(f"{len(state['other_processes'])} other process(es) compute on the GPU")
    if state["busy_cores"] > BUSY:
        notes.append(f"the machine was not at rest: others kept {state['busy_cores']:.1f} cores busy")
    return notes
