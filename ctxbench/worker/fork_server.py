"""A process with torch imported and no threads, which forks one fresh child a task; run as `python -m`.

multiprocessing's forkserver runs the caller's `__main__` again in every child and knows one source tree only; a caller
here may be any script, and the gate needs two trees: a seventh argument is the tree to take modules from.

One message a line (`ctxbench.worker.lines`). In (`orders`): a task. Out (`messages`): Started, whatever the child
reports, the last of it Done, then Ended. After a Progress the child waits for a byte on `acks`, so that the parent
draws between two samples and not during one; after an Answer that byte says what to do next. A child's own output goes
to the file `output`, so nothing that a module prints mixes with the messages.
"""

import contextlib
import fcntl
import gc
import os
import select
import signal
import sys
from dataclasses import dataclass
from typing import NoReturn

from ctxbench.worker import tasks
from ctxbench.worker.child import begin, emitter, run_task, send
from ctxbench.worker.lines import decode_task
from ctxbench.worker.processes import adopt_orphans, end_left, end_with_parent, retry_fork
from ctxbench.worker.protocol import Ended, NoProcess, Ready, Started, Task

_READ = 65536
# The first of the numbers that a child's pipes get: programs that open, close or try files count from 3.
_HIGH = 1000


def main() -> None:
    end_with_parent(int(sys.argv[1]))
    adopt_orphans()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Whoever starts this may ignore the signal, and then no child can be waited for.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    orders, messages, acks, output, static = (int(argument) for argument in sys.argv[2:7])
    begin(sys.argv[7:], bool(static))
    gc.collect()
    gc.freeze()  # a child's collections pass over what was imported, and leave its pages shared
    server = _Server(orders, messages, acks, output, woken, wake)
    send(messages, b"", Ready())
    buffer = b""
    while True:
        chunk = os.read(orders, _READ)
        if not chunk:
            return
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            if line:
                tag, _, order = line.partition(b" ")
                task = decode_task(order)
                tasks.prepare(task)
                server.fork(task, tag)


@dataclass(frozen=True)
class _Server:
    """The descriptors of the fork server. A byte can be read from `woken` when a child has ended."""

    orders: int
    messages: int
    acks: int
    output: int
    woken: int
    wake: int

    def fork(self, task: Task, tag: bytes) -> None:
        """Have a task performed by a child, and wait for its end."""
        while select.select([self.acks], [], [], 0)[0]:  # what a child that was killed did not read
            os.read(self.acks, _READ)
        own = os.getpid()
        try:
            pid = retry_fork(os.fork)
        except OSError as error:
            send(self.messages, tag, NoProcess(error.strerror or str(error)))
            return
        if pid == 0:
            end_with_parent(own)
            self._become_child(task, tag)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # the child may have done it, or be gone
            os.setpgid(pid, pid)
        code = os.waitstatus_to_exitcode(self._wait(pid))
        send(self.messages, tag, Ended(max(code, 0), max(-code, 0), end_left(pid)))

    def _wait(self, pid: int) -> int:
        """Sleep until the child ends, and kill it if the parent is gone (its end of `orders` closed); its status."""
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
            ready, _, _ = select.select([self.woken, self.orders], [], [])
            if self.woken in ready:
                os.read(self.woken, _READ)
            elif self.orders in ready:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                return os.waitpid(pid, 0)[1]

    def _become_child(self, task: Task, tag: bytes) -> NoReturn:
        """Run the task and leave without the parent's exit handlers.

        The child leads a process group of its own, so that what it starts (a compiler's workers) can be killed with it.
        It keeps two pipes, which the programs that it starts do not get.
        """
        os.setpgrp()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(self.output, 1)
        os.dup2(self.output, 2)
        for descriptor in (self.orders, self.output, self.woken, self.wake):
            os.close(descriptor)
        messages, acks = _moved(self.messages), _moved(self.acks)
        code = 1
        try:
            # Sent by the child, so that its number, without which nobody can kill it, comes before what it reports.
            send(messages, tag, Started(os.getpid()))
            code = run_task(task, emitter(messages, tag, lambda: os.read(acks, 1)))
        finally:
            os._exit(code)


def _moved(descriptor: int) -> int:
    """The descriptor under a high number, or where it is if a limit does not allow that."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:
        return descriptor
    os.close(descriptor)
    return high


if __name__ == "__main__":
    main()
