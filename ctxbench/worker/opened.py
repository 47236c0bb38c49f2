"""Record of what a person's code reads, such as files of settings and variables: a number depends on it as on the code.

Not seen is what C++ opens by itself, as `torch.jit.load` does, and what is asked about a file without opening it.
"""

import os
import stat
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import ctxbench
from ctxbench.base.call_sites import is_library
from ctxbench.plugin import elsewhere
from ctxbench.registry import BUILT_IN
from ctxbench.results.sources import OF_A_TERMINAL, UNKNOWN, VARIABLE, hash_of

# Of the system and of its tools: what differs there is another machine, or another installation.
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib/")
# What is read here has no content that could be compared later.
EVENTS = {
    *("os.listdir", "os.scandir", "os.system", "os.posix_spawn", "os.exec", "os.fork", "subprocess.Popen"),
    *("socket.connect", "socket.gethostname", "socket.getaddrinfo", "sqlite3.connect", "ctypes.dlopen", "mmap.__new__"),
}
_read: dict[str, None] = {}
_written: set[str] = set()
# The folders of ctxbench and its plugins.
_own: set[str] = set()


@cache
def listen() -> None:
    """From now on, keep what this process reads because a person's code asks for it."""
    found = find_spec(BUILT_IN)
    modules = [Path(each) for each in (found and found.submodule_search_locations) or ()]
    beside = [folder.parent / name for folder in modules for name in ("networks", "suites", "report")]
    _own.update(str(folder) for folder in (Path(ctxbench.__file__).parent, *modules, *beside, *elsewhere().values()))
    sys.addaudithook(_hear)
    os.environ.__class__ = _Variables


def since(known: set[str]) -> dict[str, str]:
    """The files that are not `known`, with their SHA-256; those that the process itself has written are left out.

    Beside them, with VARIABLE before the name, variables of the environment, and with UNKNOWN what has no content.
    """
    new = [name for name in _read if name not in known]
    known.update(new)
    return {
        name: hash_of(name)
        for name in new
        if name not in _written and (name.startswith((VARIABLE, UNKNOWN)) or _is_file(name))
    }


class _Variables(os._Environ[str]):
    """Variables of the environment, which keep what is read."""

    def __getitem__(self, name: str) -> str:
        if isinstance(name, str) and not OF_A_TERMINAL.fullmatch(name) and _asked_by_a_person():
            _read[f"{VARIABLE}{name}"] = None
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: str) -> None:
        _written.add(f"{VARIABLE}{name}")
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        _written.add(f"{VARIABLE}{name}")
        super().__delitem__(name)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event in EVENTS and _asked_by_a_person(within_imports=False):
        _read[f"{UNKNOWN}{event}"] = None
    if event != "open" or not isinstance(arguments[0], str | bytes):
        return
    path, _, flags = arguments
    whole = os.path.abspath(os.fsdecode(path))
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
        _written.add(whole)
    elif (
        not whole.startswith(SYSTEM) and not whole.endswith(".pyc") and not _of_library(whole) and _asked_by_a_person()
    ):
        _read[whole] = None


def _asked_by_a_person(within_imports: bool = True) -> bool:
    """Return whether the innermost code that is of no library is not of ctxbench.

    Not `within_imports`, what Python and a library do as they are imported is asked by nobody.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib") and not within_imports:
            return False
        if not file.startswith("<") and not _of_library(file):
            return not _of_ctxbench(file)
        frame = frame.f_back
    return False


@cache
def _of_library(file: str) -> bool:
    return is_library(Path(file)) and not _of_ctxbench(file)


@cache
def _of_ctxbench(file: str) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in _own)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
