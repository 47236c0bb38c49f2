"""Temporary folders, of which none stays: what a killed process has left, the next one removes."""

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ctxbench.base.errors import UsageError

# A folder's name begins so, and this file in it is locked while its process lives.
PREFIX, LOCK = "ctxbench-", ".lock"


@contextmanager
def temporary_folder(purpose: str = "") -> Iterator[Path]:
    """An empty folder, but for its lock; its name tells the `purpose`. UsageError if it cannot be made."""
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
        try:
            yield Path(folder)
        finally:
            lock.release()


def place() -> Path:
    """The folder in which temporary folders are made."""
    return Path(tempfile.gettempdir()).resolve()


def remove_compiler_folder() -> None:
    """Remove the folder for compiled code that PyTorch makes for each user, if nothing is in it."""
    with suppress(OSError, KeyError):  # a user may have no name
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        os.rmdir(Path(tempfile.gettempdir(), f"torchinductor_{name}"))


def _remove_left(parent: Path) -> None:
    """Remove the temporary folders whose locks nobody holds."""
    from filelock import FileLock  # as above

    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):
            if lock.is_file() and not lock.parent.is_symlink() and lock.stat().st_uid == os.getuid():
                with FileLock(lock, timeout=0):
                    shutil.rmtree(lock.parent)
