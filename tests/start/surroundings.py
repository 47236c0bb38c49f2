"""The surroundings that tests have on every machine, whoever starts them and whatever that person has set.

Of the environment they keep the names in KEPT. What ctxbench makes of other surroundings is in `test_surroundings.py`.
"""

import atexit
import contextlib
import fcntl
import locale
import os
import re
import resource
import shutil
import signal
import site
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

# What processes need to find programs, libraries and temporary folders; what the tests themselves are told.
KEPT = re.compile(
    "PATH|TMPDIR|TEMP|TMP|LD_LIBRARY_PATH|LD_PRELOAD|DYLD_.*|FAKETIME.*"
    "|CTXBENCH_TEST_.*|CTXBENCH_ATTACK|PYTEST_.*|COVERAGE_.*"
)
FIXED = {
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "xterm",
    "SHELL": "/bin/sh",
    # One thread: tests run side by side and are about what is recorded, not about speed.
    "OMP_NUM_THREADS": "1",
    # Where a test has more threads than there are cores, they wait without computing.
    "OMP_WAIT_POLICY": "PASSIVE",
    # No GPU: on a machine that has one, others may use it.
    "CUDA_VISIBLE_DEVICES": "",
    # Nor is cuDNN asked, which a machine may have or not.
    "CTXBENCH_CUDNN": "none",
    # Its strategies for trio and others, which no test has, are not imported.
    "HYPOTHESIS_NO_PLUGINS": "1",
    # Beside Python, if it can be written: in each new home matplotlib would look through all fonts.
    **({"MPLCONFIGDIR": str(Path(sys.prefix, "matplotlib"))} if os.access(sys.prefix, os.W_OK) else {}),
}
GIT = """
[user]
    name = tester
    email = tester@example.org
[safe]
    directory = *
"""
# Begin of a home's name, and the file in it that its process has locked.
HOME, MARK = "ctxbench-home-", ".home-of-tests"
# Open files that no test needs more of.
FILES = 4096


def prepare() -> None:
    """Give this process, and all that it starts, the surroundings of the tests.

    A worker of a parallel run has had them from its beginning, but for what its environment does not say.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = _temporary()
        os.environ["HOME"] = _new_home()
    kept = environment(os.environ, os.environ["HOME"])
    os.environ.clear()
    os.environ.update(kept)
    time.tzset()
    with contextlib.suppress(locale.Error):  # Python speaks UTF-8 without it as well
        locale.setlocale(locale.LC_ALL, FIXED["LC_ALL"])
    os.umask(0o022)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        more = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, more), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # A shell that starts a job in the background makes it ignore Ctrl-C, and with it all that the job starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def environment(given: Mapping[str, str], home: str) -> dict[str, str]:
    """Environment as the tests see it."""
    kept = {name: value for name, value in given.items() if KEPT.fullmatch(name)}
    return {**kept, **FIXED, **of_this_user(home)}


def of_this_user(home: str) -> dict[str, str]:
    """A name that each user of the machine has for themselves, and where packages of theirs are."""
    name = f"tester{os.getuid()}"
    return {"HOME": home, "USER": name, "LOGNAME": name, "PYTHONUSERBASE": site.getuserbase()}


def _temporary() -> str:
    """A folder for temporary files in which a program may be started, if there is one."""
    folders = [tempfile.gettempdir(), "/var/tmp", str(Path(__file__).parents[2])]
    runs = (each for each in folders if os.access(each, os.W_OK) and not os.statvfs(each).f_flag & os.ST_NOEXEC)
    return next(runs, folders[0])


def _new_home() -> str:
    """An empty home with a git identity, until this process ends; those of tests that were killed are removed."""
    for mark in Path(tempfile.gettempdir()).glob(f"{HOME}*/{MARK}"):
        with contextlib.suppress(OSError):
            _lock(mark, os.O_NOFOLLOW)
            shutil.rmtree(mark.parent)
    home = tempfile.mkdtemp(prefix=HOME)
    _lock(Path(home, MARK), os.O_CREAT | os.O_EXCL)
    (Path(home) / ".gitconfig").write_text(GIT, encoding="utf-8")
    atexit.register(_remove, home, os.getpid())
    return home


def _lock(mark: Path, flags: int) -> None:
    """Open a file, and lock it while this process lives. OSError if another one has."""
    fcntl.flock(os.open(mark, os.O_RDWR | flags), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(home: str, process: int) -> None:
    if os.getpid() == process:  # and not a copy that a test forked
        shutil.rmtree(home, ignore_errors=True)
