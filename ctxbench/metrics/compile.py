"""Compilation: how long the first pass takes where the execution is `compile`."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

from ctxbench.base import clocks as this_machine
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.temporary import temporary_folder
from ctxbench.model.failures import OutOfTime
from ctxbench.model.metric import Measurement, Metric, Quantity, TimedPass, Unit, by_mode

# Where torch keeps compiled code between processes.
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Seconds between two alarms.
AGAIN_S = 1.0


class _Alarm(BaseException):
    """Not an Exception: the compiler turns those into errors of its own."""


@contextmanager
def compile_deadline(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the main thread if compiling or exporting, and the first pass, take longer than `seconds`.

    Windows has no such limit; there that of the process ends it.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    rang = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rang
        rang = True
        raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    # again and again: code that swallows every exception, such as around an optional import, swallows the first one
    signal.setitimer(signal.ITIMER_REAL, seconds * this_machine.here.pace, AGAIN_S)
    try:
        yield
    except BaseException:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if rang:
            raise OutOfTime(f"still compiling or exporting after {seconds:g} s (compile_timeout_s)") from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def compiler_caches(own: str = "") -> Iterator[None]:
    """Give the compiler a case's own folder for its caches, so that no other case has compiled for this one.

    Without one an empty folder, which is removed.
    """
    before = {name: os.environ.get(name) for name in CACHES}
    with nullcontext(own) if own else temporary_folder() as folder:
        os.environ |= {name: os.path.join(folder, name) for name in CACHES}
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ |= {} if value is None else {name: value}


def time(measurement: Measurement, mode: Mode, one_pass: TimedPass) -> None:
    """Report the first pass of a compiled case, in the process that compiles it."""
    if measurement.execution.compiles and not measurement.finds_compiled:
        measurement.report({f"compile_{mode}_s": one_pass.first_s})


METRIC = Metric(
    name="compile",
    order=70,
    about="seconds of the first pass with torch.compile",
    columns=by_mode("compile_{mode}_s", float),
    quantities=[
        Quantity(
            key=f"compile_{mode}",
            column=f"compile_{mode}_s",
            title=f"Compile, {mode}",
            unit=Unit("s"),
            origin="measured",
            part="compile",
            noun=f"compile time ({mode})",
        )
        for mode in reversed(MODES)
    ],
    convention="Compile: seconds of the first pass, compilation included",
    asked_for=False,
    default=False,
    time=time,
)
