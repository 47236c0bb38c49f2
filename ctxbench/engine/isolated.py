"""Loads user code in a child process, and tells in a sentence if the process ended otherwise."""

import json
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Literal, Self

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import say
from ctxbench.model.failures import last_line
from ctxbench.registry.entry import Entry
from ctxbench.registry.reader import read_by, reader
from ctxbench.registry.reference import Reference

if TYPE_CHECKING:
    from ctxbench.engine.client import ForkServer
    from ctxbench.model.case import Case
    from ctxbench.model.conditions import Shape

# Seconds after which a person wants to know what is waited for: a file, or a block that is built, counted or run.
LONG_S, ANSWER_S = 10.0, 60.0
# Seconds in which a block has to be built for its call to be told.
CALL_S = 30.0
# Whether an answer is kept for later commands, of this code and these versions: on this machine alone, or on any.
KeptAnswers = Literal["no", "here", "always"]
# Seconds in which a person's file has to be imported: those of a row of a suite that names none.
IMPORT_S = 600.0


class IsolatedLoader:
    """While it is entered, the registry asks a child of its fork server what a user's file declares.

    This process then runs no code of a user's. The server starts with the first question; where many are to come,
    it imports before what `static` metrics need.
    """

    def __init__(self, static: bool = False) -> None:
        self._static = static
        self._stack = ExitStack()
        self._server: ForkServer | None = None
        self._entries: dict[Reference, Entry] = {}
        self._shapes: dict[str, Shape | None] = {}
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        self._stack.enter_context(read_by(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def entry(self, reference: Reference) -> Entry:
        """Entry of the class of a reference. UsageError if its file does anything else than declare it."""
        reference = reference.whole
        if reference not in self._entries:
            told, _ = self._load(reference.source, "module", str, reference)
            self._entries[reference] = Entry.of_plain(told[0])
        return self._entries[reference]

    def network_shape(self, name: str) -> "Shape | None":
        """The input that a network declares. UsageError if its file does anything else than that."""
        name = registry.absolute(name)
        if name not in self._shapes:
            told, _ = self._load(f"network {name}", "network", tuple[int, int, int, int] | None, name)
            self._shapes[name] = told[0]
        return self._shapes[name]

    def ask(self, case: "Case", question: str, kind: Any, *arguments: Any, keep: KeptAnswers = "no") -> Any:
        """Answer of a child about a case; output of its module is shown once. UsageError if that fails.

        What is to be kept, and is about code of ctxbench or of libraries, no child is asked again.
        """
        # Most commands ask nothing, and do without these.
        from pydantic import TypeAdapter

        from ctxbench.engine.cache import Cache, installed_key, is_installed, is_own, libraries, machine_key
        from ctxbench.worker.lines import plain

        cache, key = Cache("answered"), b""
        here = machine_key() if keep == "here" else b""
        if (keep == "always" or here) and is_installed(case):
            key = plain([question, case, *arguments, libraries()]).encode() + here
            key += b"" if is_own(case) else installed_key()
            if kept := cache.read(key):
                text, said = json.loads(kept)
                self._say_once(*said)
                return TypeAdapter(kind).validate_python(json.loads(text))
        about = f"{case.title} {list(case.shape)}"
        told, printed = self._ask(about, question, kind, case, *arguments)
        said = [*self._call(case), *printed]
        self._say_once(*said)
        if key:
            cache.write(key, json.dumps([plain(told[0]), said]).encode())
        return told[0]

    def asked(self, source: str, question: str, kind: Any, *arguments: Any) -> Any:
        """Answer of a child that imports a source. UsageError if that fails."""
        return self._load(source, question, kind, *arguments)[0][0]

    def tell_calls(self, cases: "Iterable[Case]") -> None:
        """Say once the call that builds each block of a person's own; of one that cannot be built, its case tells."""
        for case in cases:
            self._say_once(*self._call(case))

    def _call(self, case: "Case") -> list[str]:
        """A line with the call that builds a block of a person's own, where it is not known yet."""
        key = f"{case.reference} {case.hparams} {case.shape[1]}"
        if not (case.network or case.reference.startswith(f"{registry.BUILT_IN}.") or key in self._said):
            self._said.add(key)
            with suppress(UsageError):
                return [f"built: {self._ask(case.title, 'call', str, case, timeout_s=CALL_S)[0][0]}"]
        return []

    def _say_once(self, *texts: str) -> None:
        for text in dict.fromkeys(texts):
            if text not in self._said:
                say(text, stderr=True)
        self._said.update(texts)

    def _load(self, source: str, question: str, kind: Any, *arguments: Any) -> tuple[list[Any], list[str]]:
        """Answers of a child about a source, whose import may wait: for a download, a lock or a person."""
        waits = f"{source} is still being imported after {LONG_S:g} s; after {IMPORT_S:g} s it is given up"
        return self._ask(f"loading {source}", question, kind, *arguments, timeout_s=IMPORT_S, waits=waits)

    def _ask(
        self,
        about: str,
        question: str,
        kind: Any,
        *arguments: Any,
        timeout_s: float | None = None,
        waits: str = "",
    ) -> tuple[list[Any], list[str]]:
        """Answers of a child; then the output of its module, and remarks on the module."""
        from ctxbench.engine import client, remote

        if self._server is None:
            self._server = self._stack.enter_context(client.ForkServer(static=self._static))
        self._server.long_s = LONG_S if waits else ANSWER_S
        waits = waits or f"{about} has not ended after {ANSWER_S:g} s; Ctrl-C gives it up"
        self._server.on_long = lambda: say(waits, stderr=True)
        answered = remote.ask(self._server, question, kind, *arguments, timeout_s=timeout_s)
        self._server.on_long = None
        ended, failure = answered.ended, answered.failure
        sentence = answered.wrong or (failure and f"{about}: {failure.message}")
        if ended.timed_out:
            sentence = f"{about} takes more than {timeout_s:g} s; {last_line(ended.output)}"
        if sentence := sentence or (ended.unexpected_exit and f"{about} {ended.unexpected_exit}"):
            raise UsageError(sentence)
        return answered.told, [text for text in (ended.output.rstrip(), *map(str, ended.notes)) if text]


def tell_calls(cases: "Iterable[Case]") -> None:
    """Say the call that builds each block of a person's own, where a loader is entered."""
    if isinstance(loader := reader(), IsolatedLoader):
        loader.tell_calls(cases)
