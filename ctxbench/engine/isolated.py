"""Runs the code of users' files apart from the command's own process, and says in a sentence what it did instead."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import say
from ctxbench.registry.entry import Entry
from ctxbench.registry.reader import read_by

if TYPE_CHECKING:
    from ctxbench.engine.client import ForkServer
    from ctxbench.model.case import Case
    from ctxbench.model.conditions import Shape
    from ctxbench.worker.protocol import Reply, Task


class Apart:
    """While it is entered, the registry asks a child of its fork server what a user's file declares.

    This process then runs no code of a user's. The server starts with the first question; where many are to come,
    it imports before what `static` metrics need.
    """

    def __init__(self, static: bool = False) -> None:
        self._static = static
        self._stack = ExitStack()
        self._server: ForkServer | None = None
        self._entries: dict[str, Entry] = {}
        self._shapes: dict[str, Shape | None] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(read_by(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def entry(self, reference: str) -> Entry:
        """What is known of the class of a reference. UsageError if its file does anything else than declare it."""
        from ctxbench.worker.protocol import ReadEntry, ReadModule

        reference = registry.absolute(reference)

        def take(reply: "Reply") -> None:
            if isinstance(reply, ReadEntry):
                self._entries[reference] = Entry.of_plain(reply.plain)

        if reference not in self._entries:
            self._ask(ReadModule(reference), f"loading {reference.rpartition(':')[0]}", take)
        return self._entries[reference]

    def network_shape(self, name: str) -> "Shape | None":
        """The input that a network declares. UsageError if its file does anything else than that."""
        from ctxbench.worker.protocol import NetworkShape, ReadNetwork

        name = registry.absolute(name)

        def take(reply: "Reply") -> None:
            if isinstance(reply, NetworkShape):
                self._shapes[name] = reply.shape

        if name not in self._shapes:
            self._ask(ReadNetwork(name), f"loading network {name}", take)
        return self._shapes[name]

    def tell(self, task: "Task", case: "Case", on_told: "Callable[[Reply], None]") -> None:
        """Have a child tell something of a case, and show what its module prints. UsageError if that fails."""
        for text in self._ask(task, f"{case.title} {list(case.shape)}", on_told):
            say(text, stderr=True)

    def _ask(self, task: "Task", about: str, on_reply: "Callable[[Reply], None]") -> list[str]:
        """Have a child answer a task; what its module printed, and what is to be noted of it."""
        from ctxbench.engine import client
        from ctxbench.model.messages import Failure
        from ctxbench.worker.protocol import WrongInput

        wrong = ""

        def take(reply: "Reply") -> None:
            nonlocal wrong
            match reply:
                case WrongInput(sentence):
                    wrong = sentence
                case Failure(_, sentence):
                    wrong = f"{about}: {sentence}"
                case _:
                    on_reply(reply)

        if self._server is None:
            self._server = self._stack.enter_context(client.ForkServer(static=self._static))
        ended = self._server.run(task, take)
        if sentence := wrong or (ended.sudden and f"{about} {ended.sudden}"):
            raise UsageError(sentence)
        return [text for text in (ended.output.rstrip(), *map(str, ended.notes)) if text]
