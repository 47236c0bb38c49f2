"""Calls a function in a fresh process, by the name of a question (see `ctxbench.worker.questions`)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ctxbench.engine.exit import Exit
from ctxbench.model.case import Case
from ctxbench.model.messages import Failure
from ctxbench.registry.reference import Reference
from ctxbench.worker.lines import plain
from ctxbench.worker.protocol import Ask, Payload, Reply, WrongInput

if TYPE_CHECKING:
    from ctxbench.engine.one_process import Executor

# What reads values of a type takes milliseconds to make.
_reader: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


@dataclass
class Answered:
    """Reply of a process; a sentence for an invalid request, an exception of its function; its exit."""

    told: list[Any] = field(default_factory=list)
    wrong: str = ""
    failure: Failure | None = None
    ended: Exit = field(default_factory=lambda: Exit(0, 0, False, ""))


def ask(
    executor: "Executor",
    question: str,
    kind: Any,
    *arguments: Any,
    on_told: Callable[[Any], None] = lambda value: None,
    timeout_s: float | None = None,
    memory_limit_gib: float | None = None,
) -> Answered:
    """Ask a question in a fresh process. `kind` is the type of what it tells, of which `on_told` gets each at once."""
    found, adapter = Answered(), _reader(kind)

    def take(reply: Reply) -> None:
        match reply:
            case Payload(text):
                value = adapter.validate_python(json.loads(text))
                found.told.append(value)
                on_told(value)
            case WrongInput(sentence):
                found.wrong = sentence
            case Failure():
                found.failure = reply

    found.ended = executor.run(task_of(question, *arguments, memory_limit_gib=memory_limit_gib), take, timeout_s)
    return found


def task_of(question: str, *arguments: Any, memory_limit_gib: float | None = None) -> Ask:
    cases = [each for each in arguments if isinstance(each, Case)]
    references = [each for case in cases for each in (case.reference, case.network) if each]
    references += [str(each) for each in arguments if isinstance(each, Reference)]
    references += [each for each in arguments if isinstance(each, str) and ":" in each]
    return Ask(question, [plain(each) for each in arguments], references, memory_limit_gib)
