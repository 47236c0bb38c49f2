"""Objects of the running session (instances, functions, classes of a notebook) as files for other processes.

Such a file is in a temporary folder until this process ends, and is read by processes of this session alone.
"""

import atexit
import io
import os
import pickle
import secrets
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError

SUFFIX, SESSION = ".object", "CTXBENCH_SESSION"
# A module with its weights.
MOST_BYTES = 2**34


def store(thing: object, name: str) -> str:
    """Write an object to a file; a reference to it. UsageError if it holds what no other process can have."""
    import cloudpickle
    import torch

    data = io.BytesIO()
    try:
        torch.save(thing, data, pickle_module=cloudpickle)
    except Exception as error:  # whatever its own code raises
        raise UsageError(f"{name} cannot be passed to another process: {error}; give a class or a function") from error
    folder = _folder()
    path = folder / f"{len([*folder.iterdir()])}{SUFFIX}"
    disk.write(path, pickle.dumps((sys.path, data.getvalue())))
    return f"{path}:{name}"


def loader(path: Path) -> Callable[[], Any]:
    """The function that makes a new copy of a stored object, on the default device. UsageError if it is gone."""
    from ctxbench.base.temporary import PREFIX, place

    # A run or a suite of somebody else may name any file, and reading this one runs code: only `store` of this session
    # knows the name of its folder.
    inside = path.parent.name.startswith(PREFIX + _purpose()) and path.parent.parent == place()
    if not inside or not (disk.is_own(path.parent) and disk.is_own(path)):
        raise UsageError(f"{path} is no object of this Python session; run it again from the one that it is of")
    folders, data = pickle.loads(disk.read_bytes(path, MOST_BYTES))
    sys.path += [folder for folder in folders if folder not in sys.path]

    def load() -> Any:
        import torch

        return torch.load(io.BytesIO(data), map_location=torch.get_default_device(), weights_only=False)

    return load


def session() -> str:
    """The secret of this session: its processes have it in their environment, and no file that is received has it."""
    return os.environ.setdefault(SESSION, secrets.token_hex(16))


def _purpose() -> str:
    return f"objects-{session()}-"


@cache
def _folder() -> Path:
    from ctxbench.base.temporary import temporary_folder

    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(temporary_folder(_purpose()))
