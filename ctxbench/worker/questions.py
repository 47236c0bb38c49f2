"""Questions for a fresh process: a question is a name for a function, which is called there.

Arguments, and what the function returns, cross as JSON; its annotations say what the arguments are. A function with a
parameter `emit` tells what it has to tell by that, one after the other.
"""

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from ctxbench import registry
from ctxbench.base.errors import UsageError, is_interrupt
from ctxbench.model.case import Case
from ctxbench.model.conditions import Shape
from ctxbench.model.failures import describe_failure
from ctxbench.plugin import brought
from ctxbench.registry import networks
from ctxbench.registry.reference import Reference
from ctxbench.results import environment
from ctxbench.worker.lines import plain
from ctxbench.worker.protocol import Answer, Ask, Payload, Reply, WrongInput

# Tells the parent; the result is the parent's byte, where the sender waits for one.
Emit = Callable[[Reply], bytes]


def read_module(reference: Reference) -> str:
    """An entry of the registry as JSON, for the class that a reference to a user's file or package names."""
    return registry.get(reference).plain


def read_network(name: str) -> Shape | None:
    """The input [B, C, H, W] that a network declares, if it does."""
    return networks.get(name).shape


def read_call(case: Case) -> str:
    """The call that builds the module of a case."""
    return case.call


# Those of the core.
OWN: dict[str, Callable[..., Any]] = {
    "machine": environment.describe,
    "module": read_module,
    "network": read_network,
    "call": read_call,
}


@cache
def function_of(question: str) -> tuple[Callable[..., Any], dict[str, TypeAdapter[Any]]]:
    """The function that answers a question, and what reads each of its arguments. KeyError if there is none."""
    function = OWN.get(question)
    for plugin, (name, reference) in brought("questions"):
        if name == question and not function:
            function = plugin.load(reference)
    if not function:
        raise KeyError(f"no plugin answers the question {question!r}")
    types = get_type_hints(function)
    readers = {name: TypeAdapter(types[name]) for name in inspect.signature(function).parameters if name != "emit"}
    for each in readers.values():
        each.rebuild()  # models make their schema when it is needed: now
    return function, readers


def answer(task: Ask, emit: Emit) -> None:
    """Call the function of a question with the arguments of the task, and tell what it says."""
    function, readers = function_of(task.question)
    arguments = [
        reader.validate_python(json.loads(text)) for reader, text in zip(readers.values(), task.arguments, strict=True)
    ]
    if "emit" in inspect.signature(function).parameters:
        try:
            function(*arguments, emit=partial(_tell, emit))
        except UsageError as error:
            emit(WrongInput(str(error)))
        return
    sys.dont_write_bytecode = True  # reading leaves a user's folders as they are
    with reported(emit):
        try:
            emit(Payload(plain(function(*arguments))))
        except UsageError as error:
            emit(WrongInput(str(error)))


def _tell(emit: Emit, value: Any) -> bytes:
    return emit(value if isinstance(value, Answer) else Payload(plain(value)))


@contextlib.contextmanager
def reported(emit: Emit) -> Iterator[None]:
    """Report whatever a user's code raises, also what is meant to end the process; a person's Ctrl-C goes on."""
    try:
        yield
    except BaseException as error:
        if is_interrupt(error):
            raise
        emit(describe_failure(error))
