"""The process that performs tasks and the pipes to it: on Linux it forks a child for each, elsewhere it does one."""

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

from ctxbench.base.clocks import FORKS
from ctxbench.registry.objects import SESSION, session
from ctxbench.worker.processes import end_descendants, end_group, retry_fork

_CHUNK = 65536
# Seconds. Windows tells of Ctrl-C between two waits only.
_LONGEST_WAIT_S = 1.0
# glibc's malloc (mallopt(3)): blocks up to its largest threshold come from the heap, which grows in large steps and
# gives nothing back. By default the layout of a process's heap, which is chance, decides whether each pass of a module
# pays the kernel for the pages of its maps.
KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


class Forking:
    """Imports torch once and forks a fresh child for each task (`ctxbench.worker.fork_server`)."""

    def __init__(self, output: BinaryIO, tree: Path | None, static: bool, malloc: str) -> None:
        orders, self._orders = os.pipe()
        self._messages, messages = os.pipe()
        acks, self._acks = os.pipe()
        inherited = (orders, messages, acks, output.fileno())
        kept = KEEP_FREED_MEMORY if malloc == "keep" else {}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "pass_fds": inherited}
        self.process = _start("fork_server", [os.getpid(), *inherited, int(static)], tree, output, kept, **pipes)
        for descriptor in (orders, messages, acks):
            os.close(descriptor)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._messages, selectors.EVENT_READ)

    def read(self, wait_s: float | None) -> bytes | None:
        """The next bytes of its messages, none if it is gone; None if nothing came within `wait_s` seconds."""
        return os.read(self._messages, _CHUNK) if self._selector.select(wait_s) else None

    def order(self, task: bytes) -> None:
        """Write a task to it; that it is gone is known when its messages end."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders, task)

    def answer(self, data: bytes) -> None:
        """Write what its child waits for."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._acks, data)

    def end_child(self, pid: int) -> None:
        """Kill the process that performs the task, and what it started."""
        end_group(pid)

    def task_ended(self) -> None:
        """Be ready for another task, or gone."""

    def close(self) -> None:
        for descriptor in (self._orders, self._messages, self._acks):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._selector.close()
        self.process.kill()
        self.process.wait()


class OneTask:
    """Performs one task and ends (`ctxbench.worker.one_task`), for the same calls; its pipes are its own streams."""

    def __init__(self, output: BinaryIO, tree: Path | None) -> None:
        self.process = _start("one_task", [], tree, output, {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._chunks: SimpleQueue[bytes] = SimpleQueue()
        # Windows waits for no pipe with a time limit.
        Thread(target=self._forward, daemon=True).start()

    def _forward(self) -> None:
        assert self.process.stdout
        with self.process.stdout as messages:
            while chunk := os.read(messages.fileno(), _CHUNK):
                self._chunks.put(chunk)
        self._chunks.put(b"")

    def read(self, wait_s: float | None) -> bytes | None:
        try:
            return self._chunks.get(timeout=_LONGEST_WAIT_S if wait_s is None else min(wait_s, _LONGEST_WAIT_S))
        except Empty:
            return None

    def order(self, task: bytes) -> None:
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.write(task)
            self.process.stdin.flush()

    answer = order

    def end_child(self, pid: int) -> None:
        end_descendants(pid)
        self.process.kill()

    def task_ended(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.task_ended()
        assert self.process.stdin
        with contextlib.suppress(OSError):  # what it did not read
            self.process.stdin.close()


Interpreter = Forking | OneTask


def start(output: BinaryIO, tree: Path | None, static: bool, malloc: str) -> Interpreter:
    """An interpreter for `ForkServer`. BlockingIOError where the system starts no process."""
    return Forking(output, tree, static, malloc) if FORKS else OneTask(output, tree)


def _start(
    program: str, arguments: Sequence[int], tree: Path | None, output: BinaryIO, kept: Mapping[str, str], **pipes: Any
) -> "subprocess.Popen[bytes]":
    # numpy's OpenBLAS would start its threads at import, before the fork.
    environment = {**kept, **os.environ, "OPENBLAS_NUM_THREADS": "1", SESSION: session()}
    if tree is not None:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    # -P: no working folder on the search path while torch and ctxbench are imported.
    command = [sys.executable, "-P", "-m", f"ctxbench.worker.{program}", *map(str, [*arguments, *filter(None, [tree])])]
    # A session, or on Windows a process group, of its own: Ctrl-C reaches the parent alone.
    pipes |= {"start_new_session": True, "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return retry_fork(lambda: subprocess.Popen(command, env=environment, cwd=tree, stderr=output, **pipes))
