"""A process that performs one task, where none is forked; run as `python -m`, with the tree to take modules from.

It speaks as a child of `ctxbench.worker.fork_server` does. On standard input comes the task, then the bytes that it
waits for; its messages go to standard output. What a module prints goes to standard error, the parent's file.
"""

import os
import signal
import sys
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

from ctxbench.worker import tasks
from ctxbench.worker.child import begin, emitter, run_task, send
from ctxbench.worker.lines import decode_task
from ctxbench.worker.processes import end_descendants
from ctxbench.worker.protocol import Ended, Ready, Started


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    orders, messages = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    begin(sys.argv[1:], static=False)
    send(messages, b"", Ready())
    tag, _, order = next(filter(bytes.strip, orders), b"").partition(b" ")
    answers: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_take, args=(orders, answers), daemon=True).start()
    task = decode_task(order)
    tasks.prepare(task)
    send(messages, tag, Started(os.getpid()))
    code = run_task(task, emitter(messages, tag, answers.get))
    end_descendants(os.getpid())
    send(messages, tag, Ended(code, 0, []))
    os._exit(code)


def _take(orders: BinaryIO, answers: "SimpleQueue[bytes]") -> None:
    """Hand on the parent's bytes, and end this process when the parent has ended."""
    while byte := orders.read(1):
        answers.put(byte)
    end_descendants(os.getpid())
    os._exit(1)


if __name__ == "__main__":
    main()
