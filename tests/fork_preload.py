"""Imported once by the process that `forked.Forked` forks, with all that a task needs; a fork performs one task."""

import faulthandler
import gc
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch

import machines
import torch

from ctxbench.worker import questions, tasks
from ctxbench.worker.protocol import Reply, Task
from ctxbench.worker.tree import enter_tree

# Questions to a driver while all is imported: torch.cuda and torch.accelerator say nothing meanwhile.
asked: list[str] = []
_QUESTIONS = {
    torch.cuda: ("is_available", "device_count", "_lazy_init", "init"),
    torch.accelerator: ("is_available", "device_count"),
}
with ExitStack() as _patched:
    for _module, _names in _QUESTIONS.items():
        for _name in _names:
            _note = partial(asked.append, f"{_module.__name__}.{_name}")
            _patched.enter_context(patch.object(_module, _name, lambda *_, note=_note: note()))
    tasks.preload(static=True)
    for _question in ("cases", "refused", "outputs", "operators"):
        with suppress(KeyError):  # the plugin that answers it is gone
            questions.function_of(_question)


def perform(tree: Path, task: Task, environment: Mapping[str, str], send: Connection) -> None:
    os.environ.clear()
    os.environ.update(environment)
    machines.take_place()
    tasks.prepare(task)
    sys.dont_write_bytecode = True
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    faulthandler.disable()  # pytest's would print the stack of a block that is to crash
    enter_tree(tree)

    def emit(message: Reply) -> bytes:
        send.send(message)
        return b""

    gc.freeze()  # as the fork server does: a child's collections pass over what was imported
    tasks.perform(task, emit)
