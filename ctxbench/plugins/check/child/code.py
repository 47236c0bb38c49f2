"""The code of a source tree that this process has imported, so that equal code need not be timed."""

import ast
import hashlib
import sys
from pathlib import Path

from ctxbench.base import disk
from ctxbench.base.code import without_docstrings
from ctxbench.worker.tree import own_file

# Modules of ctxbench are the tree's own where it is a source tree of ctxbench; the harness is one for both sides.
HARNESS, OWN = "ctxbench.", "ctxbench.modules"


def imported_code(root: Path) -> dict[str, str]:
    """Each file below `root` that was imported, by its path from there, with the SHA-256 of what Python runs of it.

    Comments, layout and docstrings are not in it.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or (f"{name}.".startswith(HARNESS) and not name.startswith(OWN)):
            continue
        if own_file(file, root) and Path(file).is_file():
            found[Path(file).resolve().relative_to(root.resolve()).as_posix()] = _digest(Path(file))
    return found


def _digest(file: Path) -> str:
    content = disk.read_bytes(file)
    if file.suffix == ".py":
        content = ast.dump(without_docstrings(content)).encode()
    return hashlib.sha256(content).hexdigest()
