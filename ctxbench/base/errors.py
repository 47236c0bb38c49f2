"""The error that a user can act on, the sentence that suggests the nearest name, and what a user's code raises."""

import difflib
import importlib
import signal
import traceback
from collections.abc import Iterable
from pathlib import Path

from ctxbench.plugin import elsewhere

# More choices than this are listed in an error only where none is near.
LISTED = 30
# Characters of what a user's code says; no person reads more.
LONGEST = 2**17
# A name of so many letters is one that was begun, and so many that it may become are told.
LEAST_BEGUN, MOST_BEGUN = 3, 4
_PACKAGE = Path(__file__).parents[1]
_REGISTRY = _PACKAGE / "registry"
_PLUGINS = _PACKAGE / "plugins"


# By words of an exception.
_HINTS = {
    "operator torchvision::": (
        "\nhint: torchvision is built for another torch; install both from one index, such as\n"
        "pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu"
    ),
    "attempted relative import": (
        "\nhint: its folder is no package; put an empty file __init__.py into it, and into the folders above it that "
        "the import names"
    ),
}


def cut(text: str, longest: int = LONGEST) -> str:
    """The first characters of a text that is longer than this, and how many it has."""
    return text if len(text) <= longest else f"{text[:longest]} ... ({len(text)} characters)"


def text_of(error: BaseException) -> str:
    """The text of an exception, cut; it says so if that raises one itself."""
    try:
        return cut(str(error))
    except BaseException:
        return "its text cannot be printed"


def is_interrupt(error: BaseException) -> bool:
    """True for an exception by a person's Ctrl-C: none reaches a child of a fork server, where only code raises it."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) != signal.SIG_DFL


class UsageError(ValueError):
    """A wrong input. Its text is one clear sentence; the command line prints it and exits with 2."""


class EngineError(UsageError):
    """The measuring process cannot be used at all, which no module should be able to cause; a sentence says why."""


class AlteredRun(UserWarning):
    """A table of a run folder is not the one that the run wrote."""


class ModuleCodeError(UsageError):
    """An exception from a user's own file, told with that file's part of the traceback."""

    def __init__(self, source: str, error: BaseException, doing: str = "loading") -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((i for i, frame in enumerate(frames) if not _is_import(frame.filename)), 0)
        lines = traceback.format_list(frames[own:]) + traceback.format_exception_only(error)
        hint = next((hint for words, hint in _HINTS.items() if words in text_of(error)), "")
        super().__init__(f"{doing} {source} failed inside its code:\n{cut(''.join(lines).rstrip())}{hint}")


def _is_import(file: str) -> bool:
    """Return whether a frame is of what runs a user's file: ctxbench, or Python's own machinery."""
    folders, plugins = {_REGISTRY, Path(importlib.__file__).parent}, {_PLUGINS, *elsewhere().values()}
    return file.startswith("<frozen importlib") or Path(file).parent in folders or bool(plugins & {*Path(file).parents})


class UnknownClass(UsageError):
    """A file without the class that a reference names; the class may have been renamed."""


def unknown(kind: str, name: str, allowed: Iterable[str], more: str = "") -> UsageError:
    """The error for a name that is not among the allowed ones, with those that it begins or else the nearest.

    `more` says where there are more.
    """
    choices = sorted(allowed)
    begun = [each for each in choices if len(name) >= LEAST_BEGUN and each.startswith(name)][:MOST_BEGUN]
    near = begun or difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    known = f" (known: {', '.join(choices)})" if len(choices) <= LISTED or not near else ""
    return UsageError(f"unknown {kind} {name!r}{hint}{known}{more}")
