"""The files that a person names, read and written: whatever is wrong with one is a sentence with its path."""

import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ctxbench.base.errors import UsageError

# Tables and lists inside one another. What ctxbench writes and documents has fewer than ten.
DEEPEST = 64


class NoFile(UsageError):
    """Nothing is at a path."""


def read_bytes(path: Path) -> bytes:
    """Content of a file. UsageError for what cannot be read, a folder, a pipe or a device; NoFile if there is none."""
    try:
        if kind := _irregular(path):
            raise UsageError(f"cannot read {path}: {kind}")
        return path.read_bytes()
    except FileNotFoundError:
        raise NoFile(f"there is no file {path}") from None
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise UsageError(f"cannot read {path}: {_reason(error)}") from None


def read_text(path: Path) -> str:
    """The same as text. UsageError names the line that is not UTF-8."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: the text is not UTF-8; save the file as UTF-8") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. UsageError for one that is none, or is nested deeper than DEEPEST."""
    found: dict[str, Any] = _parsed(path, "TOML", tomllib.loads)
    return found


def read_json(path: Path) -> Any:
    """The same of a JSON file."""
    return _parsed(path, "JSON", json.loads)


def _parsed(path: Path, language: str, loads: Callable[[str], Any]) -> Any:
    text = read_text(path)
    too_deep = UsageError(f"{path} is nested more than {DEEPEST} levels deep")
    try:
        found = loads(text)
    except RecursionError:
        raise too_deep from None
    except ValueError as error:
        raise UsageError(f"{path} is not {language}: {error}") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [each for part in level for each in _inside(part)]
    if level:
        raise too_deep
    return found


def _inside(part: Any) -> Any:
    return part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def whole(path: Path) -> Path:
    """The path from the root, links followed. UsageError if it cannot be one."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {_reason(error)}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system refuses while something is written to `path` into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {_reason(error)}") from None


def check_place(path: Path) -> None:
    """UsageError if a folder, a pipe or a device is where a file is to be written, or there is no folder for it."""
    with writing(path):
        path.parent.stat()
        if os.path.exists(path) and (kind := _irregular(path)):
            raise UsageError(f"cannot write to {path}: {kind}")


def make_folder(path: Path) -> None:
    """Make a folder and those above it, if they are not there. UsageError if they cannot be."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"cannot write to {path}: it is a file, not a folder")
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write(path: Path, content: str | bytes, mode: Literal["w", "x", "a"] = "w") -> None:
    """Write a file anew ("w"), only if there is none ("x"), or at its end ("a").

    A file that was not there is removed if that fails. UsageError if it cannot be written.
    """
    check_place(path)
    data = content if isinstance(content, bytes) else encoded(content)
    is_new = not os.path.lexists(path)
    if mode == "x" and not is_new:
        raise UsageError(f"{path} already exists and was not changed; choose another file name")
    with writing(path), path.open(f"{mode}b") as file:
        try:
            file.write(data)
            file.flush()
        except BaseException:
            if is_new:
                path.unlink(missing_ok=True)
            raise


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Have a new empty file while its content is made; it is removed if that fails. UsageError as of `write`."""
    write(path, b"", "x")
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def encoded(text: str) -> bytes:
    """UTF-8; lone surrogates, which it cannot hold, are escaped."""
    return text.encode(errors="backslashreplace")


def _irregular(path: Path) -> str:
    """Description of a path's target, as a clause, if no regular file. Opening a pipe would wait for its other end."""
    mode = path.stat().st_mode
    return "it is a folder" if stat.S_ISDIR(mode) else "" if stat.S_ISREG(mode) else "it is no regular file"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
