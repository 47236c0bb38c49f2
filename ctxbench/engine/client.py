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

    Tasks run one at a time. `path` is put first on the zygote's module search path.
    """

    def __init__(self, path: Path | None = None) -> None:
        orders_read, self._orders = os.pipe()
        self._messages, messages_write = os.pipe()
        acks_read, self._acks = os.pipe()
        inherited = (orders_read, messages_write, acks_read)
        # numpy's OpenBLAS would start its threads at import, before the fork.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        if path is not None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ctxbench.engine.zygote", *map(str, inherited)],
            pass_fds=inherited,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for descriptor in inherited:
            os.close(descriptor)
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._messages, selectors.EVENT_READ)
        self._child: int | None = None
        handle, self._output = tempfile.mkstemp(prefix="ctxbench-", suffix=".log")
        os.close(handle)
        if self._next(None)["event"] != "ready":
            raise EngineError("the measuring process did not start")

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
        Path(self._output).write_bytes(b"")
        os.write(self._orders, json.dumps({**task, "output": self._output}).encode() + b"\n")
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
        Path(self._output).unlink(missing_ok=True)

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
        return Path(self._output).read_text(encoding="utf-8", errors="replace")[-_OUTPUT_TAIL:]
