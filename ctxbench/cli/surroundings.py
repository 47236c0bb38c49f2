"""Failures that are no fault of ctxbench or of a user's module: the machine, or another package's files."""

import errno
import importlib.util
import os
from pathlib import Path

from ctxbench.base.errors import UsageError

# What the system refuses for want of something.
_LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# What people have files of the same name of.
_PACKAGES = ("torch", "numpy", "pandas", "rich", "typer", "pydantic", "matplotlib")


def check_working_folder() -> None:
    """UsageError if the folder that the command runs in has been removed: no library finds its files then."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"the working folder cannot be used ({error.strerror}): change into another one") from None


def sentence(error: Exception) -> str:
    """Fault of the machine or its packages, if that explains an error; else ""."""
    if found := foreign():
        return found
    if isinstance(error, MemoryError):
        return "there is not enough memory (see `ulimit -v`)"
    if isinstance(error, OSError) and error.errno in _LACKING:
        what = f": {error.filename}" if error.filename else ""
        return f"the system refuses: {error.strerror}{what}"
    if isinstance(error, ImportError):
        return f"a package cannot be loaded: {str(error).splitlines()[0]}"
    return ""


def foreign() -> str:
    """A sentence if a file has the name of a package and is found in its place; else ""."""
    return next(filter(None, map(_foreign, _PACKAGES)), "")


def _foreign(name: str) -> str:
    """A sentence if a package is not found where it was installed; "" if it is, or is not installed."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, needed after an error only

    try:
        installed = Path(str(distribution(name).locate_file(name))).resolve()
        spec = importlib.util.find_spec(name)
    except (PackageNotFoundError, ImportError, ValueError, OSError):
        return ""
    origin = Path(spec.origin).resolve() if spec and spec.origin else None
    if origin is None or origin.is_relative_to(installed):
        return ""
    return f"`import {name}` finds {origin}, not the installed package: rename that file, or change PYTHONPATH"
