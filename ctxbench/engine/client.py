"""The parent's side of the zygote: start it, hand it a task, follow what the child reports, kill what runs too long."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_OUTPUT_TAIL = 2000
# glibc's malloc (mallopt(3)): blocks up to its largest threshold come from the heap, which grows in large steps and
# gives nothing back. By default the layout of a process's heap, which is chance, decides whether each pass of a module
# pays the kernel for the pages of its maps.
KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


@dataclass(frozen=True)
class Exit:
    """How a child ended: exit code, signal that killed it (0: none), whether it ran out of time, last output."""

    code: int
    signal: int
    timed_out: bool
    output: str


class EngineError(RuntimeError):
    """The measuring process itself died, which no module should be able to cause."""


class Zygote:
    """A running zygote. It and its children have their own session: Ctrl-C reaches the parent alone, which ends them.

    Tasks run one at a time. With `tree`, children take modules from this source tree (see `ctxbench.engine.tree`). The
    zygote imports torch while its maker goes on; the first task waits for it. A `timer` is for rows that are timed
    against each other: it keeps freed memory, and starts a second sooner without what static metrics need.
    """

    def __init__(self, tree: Path | None = None, timer: bool = False) -> None:
        orders_read, self._orders = os.pipe()
        self._messages, messages_write = os.pipe()
        acks_read, self._acks = os.pipe()
        # Without a name, so that it is gone when the processes are. Appended to: the writers share one offset.
        self._output = tempfile.TemporaryFile("a+b")  # noqa: SIM115  # closed by close()
        inherited = (orders_read, messages_write, acks_read, self._output.fileno())
        # numpy's OpenBLAS would start its threads at import, before the fork.
        environment = {**(KEEP_FREED_MEMORY if timer else {}), **os.environ, "OPENBLAS_NUM_THREADS": "1"}
        options: list[str] = []
        if tree is not None:
            options = ["-P"]  # no working folder on the search path: the harness is the installed one, not the tree's
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        arguments = [str(argument) for argument in (*inherited, int(not timer), tree) if argument is not None]
        self._process = subprocess.Popen(
            [sys.executable, *options, "-m", "ctxbench.engine.zygote", *arguments],
            pass_fds=inherited,
            env=environment,
            stdin=subprocess.DEVNULL,
            cwd=tree,
            start_new_session=True,
        )
        for descriptor in (orders_read, messages_write, acks_read):
            os.close(descriptor)
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._messages, selectors.EVENT_READ)
        self._child: int | None = None
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self, task: Mapping[str, Any], on_event: Callable[[dict[str, Any]], None], timeout_s: float | None = None
    ) -> Exit:
        """Run a task in a fresh child; `on_event` gets each message. The child is killed after `timeout_s` seconds."""
        self.start(task)
        ended = self._follow(on_event, timeout_s)
        if not isinstance(ended, Exit):
            raise EngineError(f"the task {task['task']!r} waits for turns; start it and take them")
        return ended

    def start(self, task: Mapping[str, Any]) -> None:
        """Begin a task in a fresh child."""
        if not self._ready:
            self._next(None)
            self._ready = True
        self._output.truncate(0)
        os.write(self._orders, json.dumps(task).encode() + b"\n")

    def turn(self, command: bytes, timeout_s: float | None = None) -> dict[str, Any] | Exit:
        """Let a child that takes turns do one (`command` is one byte); what it says after it, or how it ended.

        The empty command only waits for the child to be ready for its first turn.
        """
        if command:
            os.write(self._acks, command)
        return self._follow(lambda event: None, timeout_s)

    def stop(self) -> None:
        """End the child, if one runs, so that another task can start."""
        self._kill_child()
        if self._child is not None:
            self._follow(lambda event: None, None)

    def _follow(self, on_event: Callable[[dict[str, Any]], None], timeout_s: float | None) -> dict[str, Any] | Exit:
        """The child's messages go to `on_event` until it waits for a turn or has ended."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        timed_out = False
        while True:
            message = self._next(deadline)
            if message is None:
                timed_out, deadline = True, None
                self._kill_child()
            elif message["event"] == "started":
                self._child = message["pid"]
            elif message["event"] == "exit":
                self._child = None
                return Exit(message["code"], message["signal"], timed_out, self._tail())
            elif message["event"] == "turn":
                return dict(message)
            else:
                on_event(message)
                if message["event"] == "sample":
                    os.write(self._acks, b".")

    def close(self) -> None:
        """End the child, if one runs, and the zygote."""
        self._kill_child()
        for descriptor in (self._orders, self._messages, self._acks):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._selector.close()
        self._process.kill()
        self._process.wait()
        self._output.close()

    def _kill_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)

    def _next(self, deadline: float | None) -> Any:
        """The next message; None when the deadline passes first."""
        while b"\n" not in self._buffer:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._selector.select(wait):
                return None
            chunk = os.read(self._messages, 65536)
            if not chunk:
                raise EngineError(f"the measuring process ended with code {self._process.wait()}; {self._tail()}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _tail(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _OUTPUT_TAIL, max(0, size - _OUTPUT_TAIL))
        return tail.decode("utf-8", errors="replace")
