"""References: how a module or a network is named."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ctxbench.base import disk
from ctxbench.registry.objects import SUFFIX


@dataclass(frozen=True)
class Reference:
    """A key of the registry, or the object `name` of a `source`: a file `path.py`, or a package `package.module`.

    A key has no source, and what has one is never a key. `said_by` is the file that a reference was read from, such as
    a suite or `run.json`; it is empty where a person gave it to a command or a function.
    """

    source: str
    name: str
    said_by: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reference that a person gave. Nothing is looked up: neither may the file exist, nor the object."""
        source, _, name = text.rpartition(":")
        if source:
            return cls(source, name)
        return cls(text, "") if text.endswith(".py") else cls("", text)

    @classmethod
    def read(cls, text: str, said_by: Path) -> Self:
        """The reference that a file says."""
        return replace(cls.parse(text), said_by=str(said_by))

    def __str__(self) -> str:
        return f"{self.source}:{self.name}" if self.source else self.name

    @property
    def is_key(self) -> bool:
        return not self.source

    @property
    def is_file(self) -> bool:
        return self.source.endswith(".py")

    @property
    def is_object(self) -> bool:
        """Return whether it is an object of a running session, which `registry.objects` has stored."""
        return self.source.endswith(SUFFIX)

    @property
    def whole(self) -> Self:
        """The same with the whole path of its file."""
        return replace(self, source=str(whole_path(self.source))) if self.is_file else self

    def at(self, path: str) -> Self:
        """The same object of the file at another path."""
        return replace(self, source=path)

    @property
    def shown_source(self) -> str:
        """Its file, from the working folder if it lies inside, or its package; "" of an object of a session."""
        path, here = Path(self.source), Path.cwd()
        inside = self.is_file and path.is_relative_to(here)
        return "" if self.is_object else path.relative_to(here).as_posix() if inside else self.source

    @property
    def place(self) -> str:
        """The name of its file without the folder, or its package."""
        return "session" if self.is_object else Path(self.source).stem if self.is_file else self.source


def whole_path(source: str) -> Path:
    """The whole path of a Python file; a link is followed to a file whose name says that it is Python, too."""
    path = disk.whole(Path(source))
    return path if path.suffix == ".py" else Path(os.path.abspath(source))
