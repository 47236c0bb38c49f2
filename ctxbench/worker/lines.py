"""The form in which tasks and messages cross between processes: one a line of JSON.

A line begins with the tag of its task, which only the two processes know. What else is in the pipe, a module wrote.
"""

import json
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter

from ctxbench.worker.protocol import Reply, Task


class ProtocolError(RuntimeError):
    """A line that is no known message."""


# How each kind of message becomes plain values and back.
_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in (*get_args(Task), *get_args(Reply))
}
# Numbers that are none, such as infinity, stay what they are.
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


def plain(value: Any) -> str:
    """A value as JSON, in which a number that is none stays one."""
    return json.dumps(_ANYTHING.dump_python(value, mode="json"))


def encode(message: Task | Reply) -> bytes:
    """One line of JSON; its key `type` names the dataclass."""
    name = type(message).__name__
    return json.dumps({"type": name, **_ADAPTERS[name].dump_python(message, mode="json")}).encode() + b"\n"


def tagged(tag: bytes, line: bytes) -> bytes:
    """The line with its tag. It begins with a line break, so that it is a line of its own whatever is before it."""
    return b"\n" + tag + b" " + line


def untagged(tag: bytes, line: bytes) -> bytes | None:
    """The line without its tag; None if it has another one or none."""
    found, _, rest = line.partition(b" ")
    return rest if found == tag else None


def decode_task(line: bytes) -> Task:
    """The task in a line. ProtocolError for anything else."""
    task: Task = _decode(line, get_args(Task))
    return task


def decode(line: bytes) -> Reply:
    """The message in a line. ProtocolError for anything else."""
    reply: Reply = _decode(line, get_args(Reply))
    return reply


def _decode(line: bytes, kinds: Sequence[type]) -> Any:
    try:
        content = json.loads(line)
        name = content.pop("type")
        if name not in [kind.__name__ for kind in kinds]:
            raise ValueError(f"unknown type {name!r}")
        return _ADAPTERS[name].validate_python(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise ProtocolError(f"no known message: {line[:200]!r} ({type(error).__name__}: {reason})") from None
