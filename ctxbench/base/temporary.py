"""Temporary folders, of which none stays: what a killed process has left, the next one removes."""

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ctxbench.base import disk
from ctxbench.base.errors import UsageError

# A folder's name begins so, and the file LOCK in it is locked while its process lives. MARK holds what `mark_of` says:
# without it nothing is removed, whatever a folder is called.
PREFIX, LOCK, MARK = "ctxbench-", ".lock", ".ctxbench-temporary"


@contextmanager
def temporary_folder(purpose: str = "") -> Iterator[Path]:
    """An empty folder, but for its lock and its mark; its name tells the `purpose`. UsageError if it cannot be made."""
    from filelock import FileLock  # slow to import, and most commands need none

    try:
        parent = place()
        _remove_left(parent)
        made = tempfile.TemporaryDirectory(prefix=PREFIX + purpose, dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise UsageError(f"cannot make a temporary folder ({error}); set TMPDIR to a folder with free space") from None
    with made as folder:
        lock = FileLock(Path(folder, f"{LOCK}.new"), timeout=0)
        with suppress(OSError):
            lock.acquire()
            # So nobody sees the lock before it is held. Windows renames no open file: there a folder may stay.
            os.rename(lock.lock_file, Path(folder, LOCK))
            disk.write(Path(folder, MARK), mark_of(Path(folder)), "x")
        try:
            yield Path(folder)
        finally:
            lock.release()


def place() -> Path:
    """The folder in which temporary folders are made."""
    return Path(tempfile.gettempdir()).resolve()


def mark_of(folder: Path) -> bytes:
    """The path of a folder, and its number in its file system, which nobody knows who packs one for others."""
    return os.fsencode(f"{folder}\n{os.lstat(folder).st_ino}")


def remove_compiler_folder() -> None:
    """Remove the folder for compiled code that PyTorch makes for each user, if nothing is in it."""
    with suppress(OSError, KeyError):  # a user may have no name
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        os.rmdir(Path(tempfile.gettempdir(), f"torchinductor_{name}"))


def _remove_left(parent: Path) -> None:
    """Remove the folders of `temporary_folder` whose locks nobody holds."""
    from filelock import FileLock  # as above

    for mark in parent.glob(f"{PREFIX}*/{MARK}"):
        folder, lock = mark.parent, mark.with_name(LOCK)
        with suppress(OSError, UsageError):
            own = all(disk.is_own(each) for each in (folder, mark, lock))
            if own and disk.read_bytes(mark) == mark_of(folder):
                with FileLock(lock, timeout=0):
                    shutil.rmtree(folder)
