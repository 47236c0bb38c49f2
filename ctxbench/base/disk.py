"""The one place that reads and writes files: whatever is wrong with one is a sentence with its path."""

import gzip
import hashlib
import json
import os
import secrets
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ctxbench.base.errors import UsageError

# Tables and lists inside one another. What ctxbench writes and documents has fewer than ten.
DEEPEST = 64
# No file that is read is larger: a table of three million samples has a fifth of it.
MOST_BYTES = 2**30


class NoFile(UsageError):
    """Nothing is at a path."""


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Content of a file; of one compressed by gzip (`.gz`) what it holds. NoFile if there is none.

    UsageError for what cannot be read, a folder, a pipe or a device, and for more than `most` bytes.
    """
    try:
        if kind := _irregular(path):
            raise UsageError(f"cannot read {path}: {kind}")
        if path.stat().st_size > most:
            raise UsageError(f"cannot read {path}: it has more than {most:,} bytes")
        return _unpacked(path, most) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:
        raise NoFile(f"there is no file {path}") from None
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise UsageError(f"cannot read {path}: {_reason(error)}") from None


def _unpacked(path: Path, most: int) -> bytes:
    try:
        with gzip.open(path) as file:
            content = file.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"cannot read {path}: it is not a whole file of gzip ({error})") from None
    if len(content) > most:
        raise UsageError(f"cannot read {path}: it has more than {most:,} bytes")
    return content


def unpack(packed: Path, path: Path) -> None:
    """Put what a file compressed by gzip holds into the file `path`, and remove the compressed one."""
    replace(path, read_bytes(packed))
    packed.unlink()


def read_text(path: Path) -> str:
    """The same as text. UsageError names the line that is not UTF-8."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: the text is not UTF-8; save the file as UTF-8") from None


def package_text(package: str, file: str) -> str:
    """The text of a file that an installed package brings."""
    return files(package).joinpath(*file.split("/")).read_text(encoding="utf-8")


def first_line(path: Path) -> str:
    """The first line of a text file that was written by this process."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.readline()


def sha256(path: Path) -> str:
    """The hash of a file; empty if there is no regular file. UsageError if it cannot be read."""
    return hashlib.sha256(read_bytes(path)).hexdigest() if path.is_file() else ""


def is_own(path: Path) -> bool:
    """Return whether a path itself, and not what a link leads to, is of the user of this process.

    False for a link, and if nothing is there. A system without users has one.
    """
    try:
        about = os.lstat(path)
    except (OSError, ValueError):
        return False
    return not stat.S_ISLNK(about.st_mode) and (not hasattr(os, "getuid") or about.st_uid == os.getuid())


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. UsageError for one that is none, or is nested deeper than DEEPEST."""
    found: dict[str, Any] = _parsed(path, "TOML", tomllib.loads)
    return found


def read_json(path: Path) -> Any:
    """The same of a JSON file, of which no object has a key twice."""
    return _parsed(path, "JSON", lambda text: json.loads(text, object_pairs_hook=_object))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return found


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


def refuse_link(path: Path) -> None:
    """UsageError if a path is a link."""
    if os.path.islink(path):
        raise UsageError(f"cannot write to {path}: it is a link; remove it, or choose another folder")


def check_replaced(paths: Iterable[Path], mark: str, of: Path | None = None, advice: str = "or remove it") -> None:
    """UsageError if one of these files is there that ctxbench did not write, by the text `mark` in it, or in `of`."""
    for path in paths:
        known = of or path
        if os.path.lexists(path) and not (is_own(known) and mark.encode() in read_bytes(known)):
            raise UsageError(f"{path} is not of ctxbench and was not changed; choose another folder, {advice}")


def make_folder(path: Path, below: Path | None = None, mode: int = 0o777) -> None:
    """Make a folder, of this `mode`, and those above it, if they are not there. UsageError if they cannot be.

    Of the folder `below`, which a person named, no part of the path further down is a link.
    """
    for each in (path, *path.parents) if below else ():
        if each == below:
            break
        refuse_link(each)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"cannot write to {path}: it is a file, not a folder")
    with writing(path):
        path.mkdir(mode, parents=True, exist_ok=True)


def write(path: Path, content: str | bytes, mode: Literal["w", "x", "a"] = "w", is_named: bool = False) -> None:
    """Write a file anew ("w"), only if there is none ("x"), or at its end ("a"): whole or not at all.

    A link is followed only if the path `is_named` by a person: who sends a folder may link its files to any other.
    UsageError if it cannot be written.
    """
    data = content if isinstance(content, bytes) else encoded(content)
    if mode == "x" and os.path.lexists(path):
        check_place(path)
        raise UsageError(f"{path} already exists and was not changed; choose another file name")
    with writing(path):
        if is_named:
            check_place(path)
            path = whole(path)
        if mode == "w":
            replace(path, data)
        else:
            append(path, data, mode)


def replace(path: Path, content: bytes) -> None:
    """Put a new file in the place of a path, whatever other processes write there; it has the mode of the former one.

    OSError or UsageError if it cannot be, and if the path is a link.
    """
    check_place(path)
    refuse_link(path)
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.part")
    descriptor = _open(temporary, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.exists():
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def append(path: Path, content: bytes, mode: Literal["x", "a"] = "a") -> None:
    """Append all of `content` or, if the disk fills, none of it; Ctrl-C leaves what is already whole.

    OSError or UsageError if it cannot be, and if the path is a link.
    """
    check_place(path)
    refuse_link(path)
    is_new = not os.path.lexists(path)
    flags = os.O_WRONLY | os.O_APPEND | (os.O_EXCL if mode == "x" else 0)
    # Without a buffer, whose rest would be written when the file is closed.
    with os.fdopen(_open(path, flags), "ab", buffering=0) as file:
        start = file.tell()
        left = memoryview(content)
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except BaseException as error:
            if left or isinstance(error, OSError):
                file.truncate(start)
                if is_new:
                    path.unlink(missing_ok=True)
            raise


def _open(path: Path, flags: int) -> int:
    """Open a file, which is made if it is not there, and no link."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o666)


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
