"""Trust in code that a file names: that file may be somebody else's."""

import ast
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ctxbench.base import disk
from ctxbench.base.call_sites import is_library
from ctxbench.base.errors import UsageError
from ctxbench.plugin import elsewhere
from ctxbench.registry.reference import Reference

PACKAGE = __package__.partition(".")[0]
# Their functions make the networks that they list.
MODEL_LIBRARIES = ("timm.models", "torchvision.models")
# Begin of the clause about a file that is not the reader's own.
FOREIGN = "code that is not below the working folder: "
# Characters of a path that the system may still know.
LONGEST_PATH = 4096
# A text that names neither a path nor an address, and is no code.
WORD = re.compile(r"[\w.+-]*")


class RefusedReference(UsageError):
    """A reference in a file leads to what may not be called because of a file alone."""


def said(text: str, said_by: Path, is_network: bool = False) -> Reference:
    """The reference that a file says. UsageError if what it leads to may not run because of a file alone."""
    reference = Reference.read(text, said_by)
    if not _is_own_file(said_by) and (found := refused(reference) or (is_network and _no_network(reference))):
        raise RefusedReference(
            f"{said_by} names {found}; read it, and run it from its folder, or name it in the command"
        )
    return reference


def refused(reference: Reference, received: Path | None = None) -> str:
    """The code of a reference that may not run because a file says it, as a clause; "" if it may, or is not there.

    A key of the registry may, and code of ctxbench, of packages that need torch, and of one's own: below the working
    folder, or in the git repository that it is in, and neither in a run folder nor in the folder that was `received`.
    Nothing is imported.
    """
    if reference.is_object:
        return f"{reference}, an object of a Python session"
    if reference.is_key:
        return ""
    top = reference.source.partition(".")[0]
    if not reference.is_file and top in sys.stdlib_module_names:
        return f"{reference}, which is Python's and no module"
    for file in code_of(reference):
        if is_library(file) and not reference.is_file:
            if top != PACKAGE and not _needs_torch(top):
                return f"{reference}, of a package that does not need torch"
        elif not (top == PACKAGE or is_own(file, received)):
            return f"{FOREIGN}{file}"
    return ""


def check_settings(reference: Reference, settings: Mapping[str, Any]) -> None:
    """UsageError if a file gives code that is not one's own more than numbers and words, such as a path to read.

    Constructors of packages read what a text names, and run what is in it: a configuration, a checkpoint.
    """
    foreign = [each for each, value in settings.items() if not _is_plain(value)]
    if not foreign or _is_own_file(Path(reference.said_by)):
        return
    file = _file_of(reference)
    if reference.source.partition(".")[0] == PACKAGE or (file and is_library(file)):
        raise RefusedReference(
            f"{reference.said_by} gives {reference} {foreign[0]}={settings[foreign[0]]!r}, which is more than a number "
            "or a word; to allow it, name both in the command"
        )


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return bool(WORD.fullmatch(value)) and not os.path.lexists(value)
    return value is None or isinstance(value, int | float)


def check_found(reference: Reference, module: ModuleType, found: Any) -> None:
    """UsageError if a reference that a file says leads to what may not be called with the file's settings.

    Of a package that is a class of modules, or a function that it lists among its networks; of a file or package of
    one's own also a function of its own, not one that it imports.
    """
    from torch import nn

    if not reference.said_by or (isinstance(found, type) and issubclass(found, nn.Module)):
        return
    is_own = not is_library(Path(module.__file__ or "")) or module.__name__.startswith(f"{PACKAGE}.networks.")
    defines = is_own and getattr(found, "__module__", "") == module.__name__ and hasattr(found, "__code__")
    listed = module.__name__ in MODEL_LIBRARIES and reference.name in module.list_models()
    if not (defines or listed):
        raise RefusedReference(
            f"{reference.said_by} names {reference}, which is no class of torch.nn.Module; name it in the command to "
            "call it"
        )


def _no_network(reference: Reference) -> str:
    """A clause on what is not made to build a network: of a package what is not decorated so, else no definition."""
    is_known = reference.is_key or reference.source.partition(".")[0] == PACKAGE
    file = None if is_known else _file_of(reference)
    if file is None or file.suffix != ".py":
        return ""
    nodes = ast.walk(ast.parse(disk.read_text(file), filename=str(file)))
    found = [each for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == reference.name]
    if is_library(file):
        found = [each for each in found if "network" in " ".join(map(ast.unparse, each.decorator_list))]
    return "" if found else f"{reference}, which is no function that builds a network"


def _file_of(reference: Reference) -> Path | None:
    files = code_of(reference)
    return files[0 if reference.is_file else -1] if files else None


def code_of(reference: Reference) -> list[Path]:
    """The files that run when a reference is imported: its own, and those of the packages around it. None is imported.

    Of a dotted name they are those that Python would find, the working folder last; none if it would find none.
    """
    if reference.is_file:
        path = Path(reference.source)
        if len(reference.source) > LONGEST_PATH or not path.is_file():
            return []
        path = disk.whole(path)
        around = (each / "__init__.py" for each in path.parents)
        return [path, *(disk.whole(each) for each in _while_there(around))]
    return [disk.whole(Path(spec.origin)) for spec in _specs(reference.source) if spec.has_location and spec.origin]


def is_own(file: Path, received: Path | None = None) -> bool:
    """Return whether a file is below the working folder, or in its git repository, and in no run folder."""
    here = Path.cwd()
    if (received and file.is_relative_to(received.resolve())) or any(
        (each / "run.json").exists() for each in file.parents
    ):
        return False
    root = next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
    return file.is_relative_to(here) or file.is_relative_to(root)


def _while_there(files: Iterator[Path]) -> Iterator[Path]:
    for each in files:
        if not each.is_file():
            return
        yield each


def _specs(dotted: str) -> Iterator[ModuleSpec]:
    """The specs of a dotted name and of the packages around it, the outermost first; none if it is not whole."""
    found: list[ModuleSpec] = []
    search = [*sys.path, str(Path.cwd())]
    parts = dotted.split(".")
    for index in range(len(parts)):
        spec = _spec(".".join(parts[: index + 1]), search, is_top=not index)
        if spec is None:
            return
        found.append(spec)
        search = list(spec.submodule_search_locations or ())
    yield from found


def _spec(name: str, search: Iterable[str], is_top: bool) -> ModuleSpec | None:
    """The spec of a name in these folders, as Python's own finder takes it, which asks for imported parents."""
    portions: list[str] = []
    for entry in search:
        finder: Any = pkgutil.get_importer(entry)
        if finder is None:
            continue
        finder.invalidate_caches()
        spec: ModuleSpec | None = finder.find_spec(name)
        if spec and spec.loader:
            return spec
        portions += (spec and spec.submodule_search_locations) or ()
    if is_top and (spec := _spec_of_a_finder(name)):  # of an editable install
        return spec
    package = ModuleSpec(name, None, is_package=True)
    package.submodule_search_locations = portions
    return package if portions else None


def _spec_of_a_finder(name: str) -> ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec if spec and spec.loader else None


@cache
def _needs_torch(top: str) -> bool:
    """Return whether a package is torch, or of a distribution that says that it needs it."""
    from importlib.metadata import packages_distributions, requires  # slow to import

    names = packages_distributions().get(top, [])
    needed = [each for name in names for each in requires(name) or () if "extra ==" not in each]
    return top == "torch" or any(each.startswith("torch") for each in needed)


@cache
def _own_folders() -> tuple[Path, ...]:
    """The folders that came with ctxbench and with plugins, which may be links to elsewhere."""
    specs = [importlib.util.find_spec(name) for name in (PACKAGE, f"{PACKAGE}.suites", f"{PACKAGE}.published")]
    found = [Path(each) for spec in specs if spec for each in spec.submodule_search_locations or ()]
    return tuple(each.resolve() for each in (*found, *Path(found[0], "plugins").iterdir(), *elsewhere().values()))


def _is_own_file(file: Path) -> bool:
    """Return whether a file came with ctxbench: a suite or a published table of its own."""
    whole = Path(os.path.realpath(file))
    return any(whole.is_relative_to(folder) for folder in _own_folders())
