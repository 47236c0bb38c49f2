"""Imports the class behind a reference, which runs the code of its file."""

import importlib
import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ctxbench.base import disk
from ctxbench.base.errors import ModuleCodeError, UnknownClass, UsageError, is_interrupt, unknown
from ctxbench.base.reasons import reason
from ctxbench.base.terminal import say
from ctxbench.registry import objects
from ctxbench.registry.maker import Maker, maker_of_class, maker_of_function, maker_of_instance
from ctxbench.registry.reference import Reference, whole_path
from ctxbench.registry.torchvision import with_torchvision
from ctxbench.registry.trust import check_found

if TYPE_CHECKING:
    from torch import nn


def import_maker(reference: Reference) -> "type[nn.Module] | Maker":
    """The class of a reference, or what else makes modules of it: a function, a stored object."""
    source, name = reference.source, reference.name
    if reference.is_object:
        return _of_object(Path(source), name)
    module = import_source(source)
    found = getattr(module, name, None)
    from torch import nn

    if found is None:
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        raise UnknownClass(str(unknown(f"class in {source}", name, classes)))
    check_found(reference, module, found)
    if isinstance(found, type) and issubclass(found, nn.Module):
        return maker_of_class(found, maps=source.startswith(f"{__package__.partition('.')[0]}."))
    if isinstance(found, type | nn.Module) or not callable(found):
        raise UsageError(f"{reference} is no subclass of torch.nn.Module, and no function of the number of channels")
    return maker_of_function(name, found)


@cache
def _of_object(path: Path, name: str) -> "type[nn.Module] | Maker":
    from torch import nn

    load = objects.loader(path)
    with _of_its_own(name):
        found = with_torchvision(load)
        if isinstance(found, nn.Module):
            return maker_of_instance(name, load)
    return maker_of_class(found, maps=False) if isinstance(found, type) else maker_of_function(name, found)


def import_source(source: str) -> ModuleType:
    """The module of a file `path.py` or of a dotted name; this runs its code."""
    return _import_file(Path(source)) if source.endswith(".py") else _import_dotted(source)


def _make_importable(folders: Iterable[Path]) -> None:
    """Let a user's file import what lies in these folders; it does not take the place of a library."""
    sys.path += [folder for folder in map(str, folders) if folder not in sys.path]


def _import_dotted(name: str) -> ModuleType:
    if name.partition(".")[0] != __package__.partition(".")[0]:
        _make_importable([Path.cwd()])  # ctxbench itself needs no file of the working folder
    with _of_its_own(name):
        try:
            return with_torchvision(lambda: importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(error.name + ".")):
                raise UsageError(f"there is no module {name!r} to import") from None
            raise


def _import_file(path: Path) -> ModuleType:
    """Run a Python file once per process: as a part of the package around it, else under a name made from its path."""
    given, path = path, whole_path(str(path))
    folder, *packages = _packages(path)
    of_package = ".".join([*(each.name for each in reversed(packages)), path.stem]).removesuffix(".__init__")
    alone = "ctxbench_file_" + json.dumps(str(path)).strip('"').replace("/", "_").replace(".", "_")
    name = of_package if packages else alone
    if name in sys.modules and _file_of(name) == path.resolve():
        return sys.modules[name]
    disk.read_bytes(Path(os.path.abspath(given)))  # a sentence for what cannot be read
    _make_importable([path.parent, folder, *_project(path)])
    with _of_its_own(str(path)):
        return _import_part(name, path, packages[::-1]) if packages else with_torchvision(lambda: _run(name, path))


def _import_part(name: str, path: Path, packages: Sequence[Path]) -> ModuleType:
    """Import a file as a part of the packages around it, the outer one first.

    In place of a package whose own `__init__.py` fails, and of those in it, there are empty ones: a file that needs
    nothing of them is imported all the same.
    """
    top, why = packages[0], None
    for depth, folder in enumerate(packages, 1):
        package, file = ".".join(name.split(".")[:depth]), folder / "__init__.py"
        if package in sys.modules:
            continue
        load = partial(importlib.import_module, package) if depth > 1 else partial(_run, package, file)
        try:
            if why is None:
                with_torchvision(load)
        except Exception as error:
            if file == path:
                raise
            failing, why = package, error
        if why is not None:
            sys.modules[package] = empty = ModuleType(package)
            empty.__path__, empty.__file__ = [str(folder)], str(file)
    if _file_of(top.name) != (top / "__init__.py").resolve():
        raise UsageError(
            f"{path} is in a package {top.name!r}, and another one of that name is in use: {_file_of(top.name)}; "
            "rename the folder"
        )
    try:
        module = with_torchvision(lambda: importlib.import_module(name))
    except ImportError as error:
        raise (why if why and f"{name}.".startswith(f"{error.name}.") else error) from None
    if why:
        say(f"{path} is loaded without the package {failing}, which fails: {reason(why)}", stderr=True)
    return module


def _packages(path: Path) -> list[Path]:
    """The folder from which a file is imported, then the folders of the packages around the file, the inner one first.

    A package is a folder with an `__init__.py`, and a name that Python can import.
    """
    around = list(
        itertools.takewhile(lambda each: (each / "__init__.py").is_file() and each.name.isidentifier(), path.parents)
    )
    return [path.parents[len(around)], *around] if "." not in path.stem else [path.parent]


def _project(path: Path) -> list[Path]:
    """The root of the project that a file is in, and its `src`: what the project's own files import from."""
    marks = (".git", "pyproject.toml", "setup.py")
    root = next((each for each in path.parents if any((each / mark).exists() for mark in marks)), None)
    return [each for each in (root, root / "src") if each.is_dir()] if root else []


def _run(name: str, path: Path) -> ModuleType:
    """Run a file as the module of a name; `__init__.py` as a package."""
    inside = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _file_of(name: str) -> Path:
    return Path(getattr(sys.modules[name], "__file__", None) or "").resolve()


@contextmanager
def _of_its_own(source: str) -> Iterator[None]:
    """Turn whatever a user's file raises into ModuleCodeError: also a `sys.exit()` at its end, which ends a process."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, UsageError) or is_interrupt(error):
            raise
        raise ModuleCodeError(source, error) from error
