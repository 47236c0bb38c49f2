"""Imports the class behind a reference, which runs the code of its file."""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ctxbench.base import disk
from ctxbench.base.errors import ModuleCodeError, UnknownClass, UsageError, is_interrupt, unknown

if TYPE_CHECKING:
    from torch import nn


def import_class(reference: str) -> "type[nn.Module]":
    source, _, class_name = reference.rpartition(":")
    module = import_source(source)
    found = getattr(module, class_name, None)
    from torch import nn

    if found is None:
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        raise UnknownClass(str(unknown(f"class in {source}", class_name, classes)))
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UsageError(f"{reference} is no subclass of torch.nn.Module")
    return found


def import_source(source: str) -> ModuleType:
    """The module of a file `path.py` or of a dotted name; this runs its code."""
    return _import_file(Path(source)) if source.endswith(".py") else _import_dotted(source)


def _find_neighbours(folder: Path) -> None:
    """Let a user's file import those beside it; they do not take the place of a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import_dotted(name: str) -> ModuleType:
    _find_neighbours(Path.cwd())
    with _of_its_own(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(error.name + ".")):
                raise UsageError(f"there is no module {name!r} to import") from None
            raise


def whole_path(source: str) -> Path:
    """The whole path of a Python file; a link is followed to a file whose name says that it is Python, too."""
    path = disk.whole(Path(source))
    return path if path.suffix == ".py" else Path(os.path.abspath(source))


def _import_file(path: Path) -> ModuleType:
    """Run a Python file once per process, under a name made from its path."""
    given, path = path, whole_path(str(path))
    name = "ctxbench_file_" + json.dumps(str(path)).strip('"').replace("/", "_").replace(".", "_")
    if name in sys.modules:
        return sys.modules[name]
    disk.read_bytes(Path(os.path.abspath(given)))  # a sentence for what cannot be read
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    _find_neighbours(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _of_its_own(str(path)):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def _of_its_own(source: str) -> Iterator[None]:
    """Turn whatever a user's file raises into ModuleCodeError: also a `sys.exit()` at its end, which ends a process."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, UsageError) or is_interrupt(error):
            raise
        raise ModuleCodeError(source, error) from error
