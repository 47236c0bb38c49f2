"""Side effects of a module on its process while it is measured, which change the meaning of its numbers."""

from collections.abc import Iterator

from ctxbench.base.forks import Forks
from ctxbench.base.notes import Note
from ctxbench.worker.global_settings import DECIDED, PRECISIONS, THREADS, changed, settings
from ctxbench.worker.replaced import replaced


class SideEffects:
    """Tells what has changed since this was made, which is before a module's file is imported."""

    def __init__(self) -> None:
        self._before, self._forks = settings(), Forks.count
        self._undone: list[str] = []

    def about_to_settle(self) -> None:
        """Keep which precisions the module's file has set, before the case's dtype decides them again."""
        self._undone += changed({name: self._before[name] for name in PRECISIONS})

    def settle(self, threads: int | None) -> None:
        """Take what a case decides as it has just been set; without `threads` it does not decide their number."""
        now = settings()
        self._before |= {name: now[name] for name in (*DECIDED, *[THREADS] * (threads is not None))}

    def notes(self) -> Iterator[Note]:
        """A note for each kind of change."""
        if sentences := [*self._undone, *changed(self._before)]:
            yield Note("changes_settings", {"settings": sentences})
        if names := replaced():
            yield Note("replaces", {"names": names})
        if Forks.count > self._forks:
            yield Note("forks")
