"""A process with torch imported and no threads, which forks one fresh child a task; run as `python -m`.

multiprocessing's forkserver runs the caller's `__main__` again in every child and knows one source tree only; a caller
here may be any script, and the gate needs two trees: a sixth argument is the tree to take modules from.

One message a line (`ctxbench.worker.protocol`). In (`orders`): a task. Out (`messages`): Started, whatever the child
reports, then Ended. After a Progress the child waits for a byte on `acks`, so that the parent draws between two samples
and not during one; after an Answer that byte says what to do next. A child's own output goes to the file `output`, so
nothing that a module prints mixes with the messages.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
from pathlib import Path

from ctxbench.messages import Progress
from ctxbench.worker import tasks
from ctxbench.worker.protocol import Answer, Ended, Ready, Reply, Started, Task, decode_task, encode
from ctxbench.worker.tree import enter_tree

_READ = 65536


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who starts this may ignore it, and then no child can be waited for
    orders, messages, acks, output, static = (int(argument) for argument in sys.argv[1:6])
    importlib.import_module("torch")  # before anything of a user's is on the search path
    trees = [Path(tree) for tree in sys.argv[6:]]
    for tree in trees:
        enter_tree(tree)
    tasks.preload(bool(static))
    if not trees:
        sys.path.insert(0, os.getcwd())  # a user's modules may import their neighbours
    gc.collect()
    gc.freeze()  # a child's collections pass over what was imported, and leave its pages shared
    send(messages, Ready())
    buffer = b""
    while True:
        chunk = os.read(orders, _READ)
        if not chunk:
            return
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            _fork(decode_task(line), orders, messages, acks, output)


def send(messages: int, message: Reply) -> None:
    """Write one message whole."""
    data = encode(message)
    while data:
        data = data[os.write(messages, data) :]


def _fork(task: Task, orders: int, messages: int, acks: int, output: int) -> None:
    while select.select([acks], [], [], 0)[0]:  # what a child that was killed did not read
        os.read(acks, _READ)
    alive, kept_open = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive)
        os.close(orders)
        _child(task, messages, acks, output)
    os.close(kept_open)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # the child may have done it, or be gone
        os.setpgid(pid, pid)
    send(messages, Started(pid))
    try:
        _wait(pid, alive, orders, messages)
    finally:
        os.close(alive)


def _wait(pid: int, alive: int, orders: int, messages: int) -> None:
    """Sleep until the child ends; kill it if the parent is gone (its end of `orders` closed)."""
    ready, _, _ = select.select([alive, orders], [], [])
    if orders in ready and alive not in ready:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    send(messages, Ended(max(code, 0), max(-code, 0)))


def _child(task: Task, messages: int, acks: int, output: int) -> None:
    """Run the task and leave without the parent's exit handlers.

    The child leads a process group of its own, so that what it starts (a compiler's workers) can be killed with it.
    """
    os.setpgrp()
    os.dup2(output, 1)
    os.dup2(output, 2)

    def emit(message: Reply) -> bytes:
        send(messages, message)
        return os.read(acks, 1) if isinstance(message, Progress | Answer) else b""

    code = 1
    try:
        tasks.perform(task, emit)
        code = 0
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
