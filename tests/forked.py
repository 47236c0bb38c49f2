"""Forks of one process that has torch imported and has run nothing, for all tests and source trees."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from ctxbench.engine.exit import Exit
from ctxbench.worker.protocol import Reply, Task

Found = TypeVar("Found")


@cache
def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "fork_preload"])
    with pytest.MonkeyPatch.context() as patched:
        tests = Path(__file__).parent
        patched.setenv("PYTHONPATH", os.pathsep.join(map(str, (tests / "start", tests))))
        forkserver.ensure_running()
    return context


def in_fork(function: Callable[..., Found], *arguments: Any) -> Found:
    """Result of a function in a process that has run nothing yet.

    A failed torch.compile, for one, has Python hold the arguments of each later call until it returns, which a
    predicted peak has, too.
    """
    with ProcessPoolExecutor(1, mp_context=_context()) as pool:
        return pool.submit(function, *arguments).result()


class KeptOpen:
    """A stand-in for a fork server that `with` does not end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Forked(KeptOpen):
    """A fork server's stand-in in a source tree. Forks of the tests' own process would copy what tests have loaded."""

    def __init__(
        self, tree: Path | None = None, static: bool = True, malloc: str = "keep", *, soon: bool = True
    ) -> None:
        self.tree = tree or Path.cwd()

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        import fork_preload

        context = _context()
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=fork_preload.perform, args=(self.tree, task, dict(os.environ), send))
        process.start()
        send.close()
        try:
            while True:
                on_message(receive.recv())
        except EOFError:
            process.join()
        code = process.exitcode or 0
        process.close()
        receive.close()
        return Exit(max(code, 0), max(-code, 0), False, "")
