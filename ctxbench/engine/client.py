"""The parent's side of the fork server: start it, hand it a task, follow its child, kill what runs too long."""

import math
import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ctxbench.base import clocks as this_machine
from ctxbench.base.errors import EngineError
from ctxbench.base.notes import Note
from ctxbench.base.temporary import remove_compiler_folder
from ctxbench.engine import interpreter
from ctxbench.engine.exit import Exit
from ctxbench.model.failures import last_line, signal_name
from ctxbench.model.messages import Progress
from ctxbench.worker.lines import ProtocolError, decode, encode, tagged, untagged
from ctxbench.worker.protocol import (
    Answer,
    Ask,
    Done,
    Ended,
    MatmulRate,
    Measured,
    NoProcess,
    Ready,
    Reply,
    Started,
    Task,
)

_OUTPUT_TAIL = 2000
# A fork server that is killed from outside is started anew so many times for a task that has run no module's code.
TRIES = 3
# Of a line that is no message, a warning shows so many bytes.
_FOREIGN = 60
# Bytes. No message is as long; a module may write without end.
_LONGEST_LINE = 2**22
# A process that SIGKILL has not ended after this long is stuck in a driver; it is left behind.
KILL_S = 10.0


class ForkServer:
    """A running server. It and its children have their own session: Ctrl-C reaches the parent alone, which ends them.

    Only Linux has such a server; elsewhere each task has an interpreter of its own (`ctxbench.engine.interpreter`).
    Tasks run one at a time. With `tree`, children take modules from this source tree (see `ctxbench.worker.tree`). The
    server imports torch while its maker goes on; the first task waits for it. One that dies is replaced before the next
    task, or for this one if no module's code has run. It ends with the thread that made it. It starts a second sooner
    without what `static` metrics need, and not `soon` with its first task. `malloc` is "keep" or "default", as in a
    suite. `on_long` is called once for each task that takes more than `long_s` seconds.
    """

    def __init__(
        self, tree: Path | None = None, static: bool = True, malloc: str = "keep", *, soon: bool = True
    ) -> None:
        self._tree, self._static, self._malloc = tree, static, malloc
        self.on_long: Callable[[], None] | None = None
        self.long_s = math.inf
        # Without a name, so that it is gone when the processes are. Its writers share one offset.
        self._output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed by close()
        self._child: int | None = None
        self._has_started = False
        if soon:
            self._launch()

    def _launch(self) -> None:
        try:
            self._interpreter = interpreter.start(self._output, self._tree, self._static, self._malloc)
        except BlockingIOError as error:
            raise _no_process(str(error.strerror)) from None
        self._buffer = b""
        self._tag = b""
        # Of the task before, whose late messages are not this module's.
        self._former = b"-"
        self._foreign: str | None = None
        self._has_begun = self._is_done = self._is_lost = False
        self._child = None
        self._ready, self._has_started = False, True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        """Run a task in a fresh child; `on_message` gets its messages. It is killed after `timeout_s` seconds.

        Of several cases in one child, each has these seconds.
        """
        for _ in range(TRIES - 1):
            ended = self._run_once(task, on_message, timeout_s)
            if not self._is_lost or (self._has_begun and not is_of_machine(task)):
                return ended
        return self._run_once(task, on_message, timeout_s)

    def _run_once(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None) -> Exit:
        self.start(task)
        ended = self._follow(on_message, timeout_s)
        if not isinstance(ended, Exit):
            raise EngineError(f"the task {type(task).__name__} waits for commands; start it and send them")
        return ended

    def start(self, task: Task, timeout_s: float = math.inf) -> None:
        """Begin a task in a fresh child.

        EngineError if the fork server cannot be started, TimeoutError if that takes longer than `timeout_s` seconds.
        """
        deadline = this_machine.here.wall_s() + timeout_s
        for _ in range(TRIES):
            if not self._has_started or self._interpreter.process.poll() is not None:
                self._end()
                self._launch()
            message = None if self._ready else self._next(deadline)
            if isinstance(message, _Late):
                raise TimeoutError
            self._ready |= isinstance(message, Ready)
            if self._ready:
                break
            self._interpreter.process.wait()
        else:
            raise EngineError(f"the measuring process {self._death()} {TRIES} times; {last_line(self._tail())}")
        self._output.seek(0)
        self._output.truncate()
        self._former = self._tag or self._former
        self._tag = secrets.token_hex(8).encode()
        self._foreign, self._has_begun, self._is_done, self._is_lost = None, False, False, False
        self._interpreter.order(tagged(self._tag, encode(task)))

    def command(self, command: bytes, timeout_s: float | None = None) -> Answer | Exit:
        """Send a child that takes commands (a byte each) one; what it answers, or how it ended.

        The empty command only waits for the child to be ready for its first.
        """
        if command:
            self._interpreter.answer(command)
        return self._follow(lambda message: None, timeout_s)

    def stop(self) -> None:
        """End the child, if one runs, so that another task can start."""
        self._kill_child()
        if self._child is not None:
            self._follow(lambda message: None, KILL_S)

    def _follow(self, on_message: Callable[[Reply], None], timeout_s: float | None) -> Answer | Exit:
        """The child's messages go to `on_message` until it answers a command or has ended, or the fork server has."""
        start = this_machine.here.wall_s()
        deadline = math.inf if timeout_s is None else start + timeout_s
        long = start + self.long_s if self.on_long else math.inf
        timed_out = False
        while True:
            match self._next(min(long, deadline)):
                case _Late() if self.on_long and long <= deadline:
                    long = math.inf
                    self.on_long()
                case _Late() if not timed_out:
                    timed_out, deadline = True, this_machine.here.wall_s() + KILL_S
                    self._kill_child()
                case _Late():
                    # Stuck in a driver, it keeps its end of the pipe open: nothing more is waited for.
                    self._child = None
                    self._interpreter.process.kill()
                    return self._exit_of_all(True)
                case _Gone():
                    self._kill_child()
                    self._child, self._is_lost = None, True
                    return self._exit_of_all(timed_out)
                case Started(pid):
                    self._child, self._has_begun = pid, True
                case NoProcess(reason):
                    raise _no_process(reason)
                case Done():
                    self._is_done = True
                case Ended(code, killed_by, left):
                    self._child = None
                    self._interpreter.task_ended()
                    return self._exit(code, killed_by, timed_out, left)
                case Answer() as answer:
                    return answer
                case message:
                    on_message(message)
                    if isinstance(message, Progress | Measured):
                        self._interpreter.answer(b".")
                    if isinstance(message, Measured) and timeout_s is not None:
                        deadline = this_machine.here.wall_s() + timeout_s

    def _exit_of_all(self, timed_out: bool) -> Exit:
        """Exit of the child with which the interpreter has ended."""
        code = self._interpreter.process.wait()
        return self._exit(max(code, 0), max(-code, 0), timed_out)

    def _exit(self, code: int, killed_by: int, timed_out: bool, left: Sequence[str] = ()) -> Exit:
        """Exit of the child, with its activity besides the task."""
        notes = []
        if left:
            notes.append(Note("left_running", {"commands": [*left]}))
        if self._foreign is not None:
            notes.append(Note("wrote_into_pipe", {"content": str(self._foreign)}))
        return Exit(code, killed_by, timed_out, self._tail(), not self._is_done, tuple(notes))

    def _death(self) -> str:
        code = self._interpreter.process.wait()
        return f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"

    def close(self) -> None:
        """End the child, if one runs, and the fork server."""
        self.stop()
        self._end()
        self._output.close()
        remove_compiler_folder()

    def _end(self) -> None:
        if self._has_started:
            self._interpreter.close()

    def _kill_child(self) -> None:
        if self._child is not None:
            self._interpreter.end_child(self._child)

    def _next(self, deadline: float) -> "Reply | _Late | _Gone":
        """The next message; that the deadline has passed, or that the fork server is gone.

        A child that sends what is no message is killed, and that line is the last of its output. A line without the
        task's tag is left out.
        """
        while True:
            line = self._line(deadline)
            if not isinstance(line, bytes):
                return line
            own = untagged(self._tag, line)
            if own is None:
                if line and not line.startswith(self._former):
                    self._foreign = repr(line[:_FOREIGN].decode(errors="replace"))
                if this_machine.here.wall_s() > deadline:
                    return _Late()
                continue
            try:
                return decode(own)
            except ProtocolError as error:
                self._output.write(f"\n{error}\n".encode())
                self._kill_child()

    def _line(self, deadline: float) -> "bytes | _Late | _Gone":
        while b"\n" not in self._buffer:
            wait = deadline - this_machine.here.wall_s()
            if wait < 0:
                return _Late()
            chunk = self._interpreter.read(None if wait == math.inf else wait * this_machine.here.pace)
            if chunk is None:
                continue
            if not chunk:
                return _Gone()
            # With a zero byte, what is left of a line is no message.
            kept = self._buffer if len(self._buffer) < _LONGEST_LINE else self._buffer[:_FOREIGN] + b"\0"
            self._buffer = kept + chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _tail(self) -> str:
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - _OUTPUT_TAIL))
        return self._output.read(_OUTPUT_TAIL).decode("utf-8", errors="replace")


def is_of_machine(task: Task) -> bool:
    """Return whether a task runs no module, and tells of the machine alone."""
    return isinstance(task, MatmulRate) or (isinstance(task, Ask) and task.question == "machine")


def _no_process(reason: str) -> EngineError:
    return EngineError(
        f"the system starts no process to run a module in: {reason}; see `ulimit -u`, or the limit of the container"
    )


class _Late:
    """The deadline has passed."""


class _Gone:
    """The fork server has ended."""
