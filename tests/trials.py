"""One generated trial of a command: run it in this process, and say what it did that no command may do."""

import io
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from ctxbench import cli
from ctxbench.base.errors import UsageError

# Seconds of wall time. Only what hangs takes so long.
LONGEST_S = 120
# A command whose help lists no exit codes ends well or was used wrongly.
USUAL_CODES = {0, 2}
LEFT_OUT = "left out of generated trials: it measures for minutes"
# What measures for minutes however small its input is, or starts a cluster.
LONG = (
    "ctxbench.plugins.calibrate.calibrate.calibrate",
    "ctxbench.plugins.check.self_test.self_test",
    "ctxbench_science.cluster.cluster.connect",
    "ctxbench.plugins.verify.command._print_deep",
)


class Hung(BaseException):
    """A command that does not end; no handler of errors may take it for one of its own."""


def codes(name: str) -> set[int]:
    """The exit codes that the help of a command lists."""
    listed = re.search(r"Exit codes: (.*)", " ".join((cli.imported(name).help or "").split()))
    return {int(each) for each in re.findall(r"\b(\d+) [a-z]", listed[1])} if listed else USUAL_CODES


def try_command(arguments: Sequence[str], folder: Path) -> list[str]:
    """Run `ctxbench` with `folder` as its working folder; what was wrong of it, and then what it printed."""
    temporary = Path(tempfile.mkdtemp())
    before = processes()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), surroundings(arguments, folder, temporary), alarm():
        try:
            cli.main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
        except Hung:
            code = "hung"
        except BaseException as error:
            code = f"raised {error!r}"
    printed = b"".join(each.buffer.getvalue() for each in (out, err)).decode()
    wrong = [f"exit code {code!r}"] if code not in codes(arguments[0]) else []
    wrong += ["a traceback"] if "Traceback (most recent call last)" in printed else []
    wrong += ["nothing printed"] if not printed.strip() else []
    wrong += [f"left {each.name} in TMPDIR" for each in temporary.iterdir()]
    wrong += [f"left the process {each}" for each in left(before)]
    shutil.rmtree(temporary)
    return [*wrong, printed] if wrong else []


def left(before: Set[str]) -> list[str]:
    """Processes that a command has started and that do not end; one that is ending needs its time on a busy machine."""
    deadline = time.monotonic() + LONGEST_S
    while (found := processes() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(found)


def processes() -> set[str]:
    """The names and numbers of what this process and its fork server have started, less the server itself.

    All trials share one, which is started again where it was ended: by a file, or as what does not react in time.
    """
    found, own = {}, psutil.Process()
    for each in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            is_server = each.ppid() == own.pid and "ctxbench.worker.fork_server" in each.cmdline()
            found[f"{each.name()} {each.pid}"] = is_server
    servers = [name for name, is_server in found.items() if is_server]
    return found.keys() - servers[:1]


@contextmanager
def surroundings(arguments: Sequence[str], folder: Path, temporary: Path) -> Iterator[None]:
    """The command's arguments, working folder, environment and folder for temporary files."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.object(sys, "argv", ["ctxbench", *arguments]),
            mock.patch.dict(os.environ, TMPDIR=str(temporary)),
            mock.patch.object(tempfile, "tempdir", str(temporary)),
        ):
            yield
    finally:
        os.chdir(here)


@contextmanager
def alarm() -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refuse(*arguments: Any, **options: Any) -> None:
    raise UsageError(LEFT_OUT)
