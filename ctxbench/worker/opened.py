"""Files that a person's code opens and reads, such as settings: a number depends on them as on the code."""

import os
import stat
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import ctxbench
from ctxbench.base import disk
from ctxbench.base.call_sites import is_library
from ctxbench.registry import BUILT_IN

# Of the system and of its tools: what differs there is another machine, or another installation.
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib/")
_read: dict[str, None] = {}
_written: set[str] = set()
# The folders of ctxbench.
_own: set[str] = set()


@cache
def listen() -> None:
    """From now on, keep each file that this process opens because a person's code asks for it."""
    found = find_spec(BUILT_IN)
    modules = [Path(each) for each in (found and found.submodule_search_locations) or ()]
    beside = [folder.parent / name for folder in modules for name in ("networks", "suites", "report")]
    _own.update(str(folder) for folder in (Path(ctxbench.__file__).parent, *modules, *beside))
    sys.addaudithook(_hear)


def since(known: set[str]) -> dict[str, str]:
    """The files that are not `known`, with their SHA-256; those that the process itself has written are left out."""
    new = [path for path in _read if path not in known]
    known.update(new)
    return {path: disk.sha256(Path(path)) for path in new if path not in _written and _is_file(path)}


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
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


def _asked_by_a_person() -> bool:
    """Return whether the innermost code that is of no library is not of ctxbench."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
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
