"""Calls a function in a process of its own, which may print, crash or hang, with a limit of time."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from ctxbench.base import clocks as this_machine
from ctxbench.base.forks import Forks
from ctxbench.meta.without_compiler import end_stand_ins
from ctxbench.model.failures import describe_failure, signal_name
from ctxbench.worker.processes import end_descendants, end_with_parent


class NoAnswer(Exception):
    """The process ended without an answer; the sentence says how."""


def isolated(function: Callable[..., Any], *arguments: Any, limit_s: float) -> Any:
    """Return what `function` returns, called in a copy of this process; where none is forked, in a new interpreter.

    Raises NoAnswer with a sentence if it raised, ended its process, or took more than `limit_s` seconds.
    """
    context: Any = get_context("fork" if this_machine.FORKS else "spawn")
    reader, writer = context.Pipe(duplex=False)
    process: Any = context.Process(target=_answer, args=(writer, os.getpid(), function, arguments))
    with Forks.ours():
        process.start()
    writer.close()
    try:
        if not reader.poll(limit_s * this_machine.here.pace):
            raise NoAnswer(f"stopped after {limit_s:g} s")
        answer, failure = reader.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        raise NoAnswer(f"its process ended with {signal_name(-code) if code < 0 else f'exit code {code}'}") from None
    finally:
        reader.close()
        end_descendants(process.pid or 0)
        process.kill()
        process.join()
    if failure:
        raise NoAnswer(failure)
    return answer


def _answer(writer: Connection, parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if this_machine.FORKS:
        end_with_parent(parent)
    end_stand_ins()
    try:
        writer.send((function(*arguments), ""))
    except Exception as error:
        writer.send((None, describe_failure(error).message))
