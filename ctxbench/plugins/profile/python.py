"""Time in Python by line: the stack of the thread that runs passes, looked at again and again by another thread."""

import sys
import threading
from collections import defaultdict
from types import FrameType

from ctxbench.base import clocks as this_machine
from ctxbench.base.call_sites import CallSites, Line
from ctxbench.devices.clock import Clock, Step
from ctxbench.plugins.memory.profile import Phase
from ctxbench.plugins.profile.profile import Pass, PythonLine

# Seconds from one look to the next, and those after which Python lets the other thread run.
LOOK_S, SWITCH_S = 1e-3, 2e-4
# Passes that are looked at, at least and at most, and for so many seconds.
FEWEST, MOST, SECONDS = 3, 200, 1.0


class Looks:
    """The seconds of the lines at which a thread was found: each look stands for the time since the one before."""

    def __init__(self, places: CallSites, now: float) -> None:
        self.seconds: dict[tuple[Phase, Line], float] = defaultdict(float)
        self.functions: dict[Line, str] = {}
        self._places, self._last = places, now

    def take(self, frame: FrameType | None, now: float) -> None:
        """A look at a thread that is in this frame. What is in no pass of the module counts for no line."""
        seconds, self._last = now - self._last, now
        place = self._places.at(frame)
        line = place.own if place else self._places.in_backward(frame)
        if line is None:
            return
        self.seconds["forward" if place else "backward", line] += seconds
        while frame is not None and line not in self.functions:
            if (frame.f_code.co_filename, frame.f_lineno) == (line.file, line.number):
                self.functions[line] = frame.f_code.co_qualname
            frame = frame.f_back


def sampled(step: Step, clock: Clock, places: CallSites, taken: Pass) -> list[PythonLine]:
    """The milliseconds of lines outside of the operators of `taken`, and of those in a backward pass, longest first."""
    looks = Looks(places, this_machine.here.now())
    own, ended = threading.get_ident(), threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            looks.take(sys._current_frames().get(own), this_machine.here.now())

    thread, interval, passes = threading.Thread(target=look, daemon=True), sys.getswitchinterval(), 0
    sys.setswitchinterval(SWITCH_S)
    thread.start()
    try:
        end = clock.now() + SECONDS
        while passes < FEWEST or (clock.now() < end and passes < MOST):
            clock.time_block(step, 1)
            passes += 1
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    return outside(looks, passes, taken)


def outside(looks: Looks, passes: int, taken: Pass) -> list[PythonLine]:
    """The time at each line in milliseconds a pass: in the forward pass without that of its operators."""
    operators: dict[tuple[Phase, Line | None], float] = defaultdict(float)
    for part in taken.parts("line"):
        operators["forward", part.line] += part.forward_ms
    found = [
        PythonLine(line, looks.functions.get(line, ""), 1e3 * seconds / passes - operators[phase, line], phase)
        for (phase, line), seconds in looks.seconds.items()
    ]
    return sorted((each for each in found if each.ms > 0), key=lambda each: -each.ms)
