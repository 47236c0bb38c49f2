"""Hides from ctxbench's own code what another system lacks, in this process and in all that it starts.

Libraries see the system that is there: how they work on another one is not simulated, and paths stay those of Linux.
"""

import builtins
import os
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

# Names one of SYSTEMS.
VARIABLE = "CTXBENCH_TEST_SYSTEM"
_ON_LINUX_ALONE = {"os": "sched_getaffinity sched_setaffinity", "select": "epoll", "ctypes": "CDLL"}
_NOT_ON_WINDOWS = {
    "os": (
        "sched_getaffinity sched_setaffinity fork register_at_fork getuid geteuid killpg getpgid setpgid setpgrp "
        "setsid wait WNOHANG pread pwrite sysconf getloadavg mkfifo uname nice getppid set_blocking"
    ),
    "signal": (
        "SIGKILL SIGHUP SIGALRM SIGPROF SIGCHLD SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 setitimer ITIMER_REAL ITIMER_PROF alarm"
    ),
    "select": "epoll poll select",
    "selectors": "DefaultSelector",
    "socket": "AF_UNIX",
    "ctypes": "CDLL",
    **dict.fromkeys(("fcntl", "resource", "termios", "pwd", "grp"), "*"),
}


def _popen(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
    if refused := {"pass_fds", "preexec_fn"} & options.keys():
        raise ValueError(f"{min(refused)} not supported on Windows platforms.")
    return subprocess.Popen(*arguments, **options)


# By name: the attributes of modules that ctxbench does not find ("*": the module), and those that are others.
SYSTEMS: dict[str, tuple[Mapping[str, str], Mapping[str, Mapping[str, Any]]]] = {
    "macos": (_ON_LINUX_ALONE, {"sys": {"platform": "darwin"}}),
    "windows": (_NOT_ON_WINDOWS, {"sys": {"platform": "win32"}, "os": {"name": "nt"}, "subprocess": {"Popen": _popen}}),
}
_import, _seen = builtins.__import__, dict[str, ModuleType]()


class _Seen(ModuleType):
    """A module as ctxbench sees it; what it sets there is set in the module."""

    def __init__(self, real: ModuleType, hidden: str, other: Mapping[str, Any]) -> None:
        super().__init__(real.__name__)
        vars(self).update(other, _real=real, _hidden=hidden.split())

    def __getattr__(self, name: str) -> Any:
        if name in self._hidden:
            raise AttributeError(f"{self.__name__}.{name} is hidden: {os.environ[VARIABLE]} has none")
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def hide() -> None:
    """Be the system that the environment names, for ctxbench."""
    hidden, other = SYSTEMS[os.environ[VARIABLE]]

    def import_(name: str, globals: Any = None, *more: Any, **options: Any) -> Any:
        found = _import(name, globals, *more, **options)
        if name not in hidden.keys() | other.keys() or not _is_ctxbench(globals or {}):
            return found
        if hidden.get(name) == "*":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return _seen.setdefault(name, _Seen(found, hidden.get(name, ""), other.get(name, {})))

    builtins.__import__ = import_
    sys.addaudithook(_refuse_proc)


def _refuse_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals["__name__"].partition(".")[0] in ("pathlib", "io"):
            frame = frame.f_back
        if _is_ctxbench(frame.f_globals):
            raise FileNotFoundError(2, "No such file or directory", arguments[0])


def _is_ctxbench(names: Mapping[str, Any]) -> bool:
    return (names.get("__package__") or "").partition(".")[0] == "ctxbench"
