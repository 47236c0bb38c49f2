"""Steps of a process that performs a task on any system: import torch first, report, say Done, flush its streams."""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path

from ctxbench.model.messages import Progress
from ctxbench.worker import tasks
from ctxbench.worker.lines import encode, tagged
from ctxbench.worker.protocol import Answer, Done, Measured, Reply, Task
from ctxbench.worker.questions import Emit
from ctxbench.worker.tree import enter_tree


def begin(trees: Sequence[str], static: bool) -> None:
    """Import what tasks need, with modules from a source tree if one is given; what `static` metrics need, too."""
    sys.unraisablehook = _tell_ignored
    importlib.import_module("torch")  # before anything of a user's is on the search path
    for tree in trees:
        enter_tree(Path(tree))
    tasks.preload(static)
    if not trees:
        sys.path.insert(0, os.getcwd())  # a user's modules may import their neighbours


_printed: set[str] = set()


def _tell_ignored(raised: "sys.UnraisableHookArgs") -> None:
    """Say once, in a line, what was raised where nothing can take it, such as in a `__del__`."""
    where = getattr(raised.object, "__qualname__", "") or raised.err_msg or "code of the module"
    last = traceback.extract_tb(raised.exc_traceback)[-1:]
    line = "".join(f" ({Path(each.filename).name}, line {each.lineno})" for each in last)
    sentence = f"ignored: {where} raised {raised.exc_type.__name__}: {raised.exc_value}{line}"
    if sentence not in _printed:
        _printed.add(sentence)
        print(sentence, file=sys.stderr)


def send(messages: int, tag: bytes, message: Reply) -> None:
    """Write one message whole."""
    data = tagged(tag, encode(message))
    while data:
        data = data[os.write(messages, data) :]


def emitter(messages: int, tag: bytes, answer: Callable[[], bytes]) -> Emit:
    """Sender of a task's messages, which waits for the parent's `answer` where a message has one."""
    own = os.getpid()

    def emit(message: Reply) -> bytes:
        if os.getpid() != own:  # a copy that a module has forked, and that has come back
            os._exit(0)
        send(messages, tag, message)
        return answer() if isinstance(message, Progress | Answer | Measured) else b""

    return emit


def run_task(task: Task, emit: Emit) -> int:
    """Do a task and say Done, or print what it raised; the exit code for its process."""
    code = 1
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what is printed last is told however the process ends
    try:
        tasks.perform(task, emit)
        emit(Done())
        code = 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, "".join(traceback.format_exception(error)).encode(errors="replace"))
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return code
