"""Number of times that Python code forks this process: a copy of it may run beside what is measured."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


class Forks:
    """Counts the forks of this process, without those of ctxbench's own."""

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1

    @classmethod
    @contextmanager
    def ours(cls) -> Iterator[None]:
        """Leave out the forks until the end of the block, in which ctxbench forks."""
        before = cls.count
        try:
            yield
        finally:
            cls.count = before


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=Forks.add)
