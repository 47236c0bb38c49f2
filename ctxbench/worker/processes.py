"""Lifetimes of processes: one that ends with its parent, adopted orphans, processes left by a child."""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from ctxbench.base import clocks as this_machine

# From linux/prctl.h.
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
# Processes that SIGKILL has not ended after this many seconds are stuck in a driver; they are left.
_END_S = 2.0
_POLL_S = 0.01
# Seconds before a second and a third try, where the system starts no process.
WAITS_S = (0.5, 3.0)

StartedProcess = TypeVar("StartedProcess")


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends, or now if that was `parent` and is gone."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def retry_fork(start: Callable[[], StartedProcess]) -> StartedProcess:
    """Retry `start`, which starts a process. OSError where the system has had none to give for some seconds."""
    for wait_s in WAITS_S:
        try:
            return start()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
            time.sleep(wait_s)
    return start()


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parent ends, so that `end_left` finds them."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def end_group(group: int) -> None:
    """Kill the processes of a process group, if there are any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def end_descendants(pid: int) -> None:
    """Kill what a process has started, on any system; orphans among it are not found."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()


def end_left(group: int) -> list[str]:
    """Kill all children of this process; the names of those that are not of this process group."""
    end_group(group)
    left: dict[int, str] = {}
    deadline = this_machine.here.wall_s() + _END_S
    while this_machine.here.wall_s() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not ended:
            left |= _kill_children(group)
            time.sleep(_POLL_S)
    return list(left.values())


def _kill_children(group: int) -> dict[int, str]:
    """Kill all that this process is the parent of; the names of those outside the group, by their numbers."""
    import psutil

    found = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(child.pid) != group:
                found[child.pid] = child.name()
            child.kill()
    return found


def _prctl(option: int, argument: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)  # Linux alone has it, and fork servers
