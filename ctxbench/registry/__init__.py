"""The registry of context modules: register, find, describe and load them; nothing here imports torch by itself."""

import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.base.errors import UsageError, unknown
from ctxbench.registry.entry import Entry, Hyperparameter
from ctxbench.registry.load import import_class, whole_path
from ctxbench.registry.reader import reader
from ctxbench.registry.source import class_names, find_source, scan_source

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from torch import nn

ENTRY_POINT_GROUP = "ctxbench.modules"
BUILT_IN = "ctxbench.modules"
_registered: dict[str, Entry] = {}


def register(
    key: str,
    *,
    title: str,
    paper: str = "",
    year: int | None = None,
    family: str = "other",
    params: str | None = None,
    macs: str | None = None,
    out_channels: str = "C",
    complexity: str = "",
    position_mixing: bool | str = True,
    reach: str = "n",
    listed: bool = True,
    public_code: str = "",
) -> Callable[["type[nn.Module]"], "type[nn.Module]"]:
    """Class decorator that puts an `nn.Module` into the registry under `key`.

    Modules of one `family` have one colour in figures; docs/bring-your-own.md lists the families.
    The class takes `channels` first and then typed keyword hyper-parameters, each with a default. Give every argument
    of the decorator as a literal: `ctxbench list` reads it from the source without running the file.
    Raises UsageError if another class holds the key.
    """

    def decorate(cls: "type[nn.Module]") -> "type[nn.Module]":
        entry = replace(
            _describe_class(cls, f"{inspect.getfile(cls)}:{cls.__qualname__}"),
            key=key,
            title=title,
            paper=paper,
            year=year,
            family=family,
            params=params,
            macs=macs,
            out_channels=out_channels,
            complexity=complexity,
            position_mixing=position_mixing,
            reach=reach,
            listed=listed,
            public_code=public_code,
        )
        known = _registered.get(key) or _discovered().get(key)
        if known is not None and _origin(known) != _origin(entry):
            raise _clash(key, known, entry)
        _registered[key] = known or entry
        return cls

    return decorate


def names() -> list[str]:
    """The keys that are listed: built-in modules, those of installed packages, those registered by running code."""
    return sorted(key for key, entry in {**_discovered(), **_registered}.items() if entry.listed)


def entries() -> list[Entry]:
    """All entries, in the order of their keys."""
    return [get(name) for name in names()]


def get(name: str) -> Entry:
    """The entry of a registered key, of `path/file.py:Class`, or of `package.module:Class`.

    The last two import the class, here or where the process's reader does. Raises UsageError with the nearest known
    name for an unknown key.
    """
    if ":" in name or name.endswith(".py"):
        return _from_reference(name)
    known = {**_discovered(), **_registered}
    if name not in known:
        package, dot, class_name = name.rpartition(".")
        if dot:
            raise UsageError(f"unknown module {name!r}; a class of a package is {package}:{class_name}")
        raise unknown("module", name, names())
    return known[name]


def means(name: str, key: str, reference: str) -> bool:
    """True if a name in a suite or a command is this module's: its key, class or reference (a path may be relative)."""
    return name in (key, reference, reference.rpartition(":")[2]) or (":" in name and absolute(name) == reference)


def of_class(cls: "type[nn.Module]", reference: str | None = None) -> Entry:
    """The entry of a class that is at hand: as it was registered, else described by its constructor."""
    reference = reference or f"{inspect.getfile(cls)}:{cls.__qualname__}"
    for entry in _registered.values():
        if _origin(entry) == _origin_of(inspect.getfile(cls), cls.__qualname__):
            return replace(entry, reference=reference)
    return replace(_describe_class(cls, reference), key=cls.__name__, title=cls.__name__)


def reference_of(cls: "type[nn.Module]") -> str:
    """Reference of a class for another process: `package.module:Class`, or `/path/file.py:Class` outside a package.

    UsageError for a class of the running script or notebook: another process would have to run that again.
    """
    if cls.__module__ == "__main__":
        raise UsageError(f"the class {cls.__qualname__} is in the running script; put it into a file of its own")
    source = cls.__module__ if "." in cls.__module__ else str(Path(inspect.getfile(cls)).resolve())
    return f"{source}:{cls.__qualname__}"


@cache
def _discovered() -> dict[str, Entry]:
    from importlib.metadata import entry_points  # slow to import, needed only here

    found: dict[str, Entry] = {}
    for entry in _scan_built_in():
        known = found.get(entry.key)
        if known is not None:
            raise _clash(entry.key, known, entry)
        found[entry.key] = entry
    for point in entry_points(group=ENTRY_POINT_GROUP):
        entry = _from_entry_point(point)
        known = found.get(entry.key)
        if known is not None and _origin(known) != _origin(entry):
            reason = f"its key {entry.key!r} is taken by {known.reference}; rename its entry point"
            entry = replace(entry, key=f"{entry.key} ({entry.reference})", broken=reason)
        found[entry.key] = entry
    return found


def _scan_built_in() -> Iterator[Entry]:
    spec = importlib.util.find_spec(BUILT_IN)
    if spec is None or spec.submodule_search_locations is None:
        raise UsageError(f"the package {BUILT_IN} is not installed; install ctxbench with pip")
    for folder in spec.submodule_search_locations:
        for path in sorted(Path(folder).glob("*.py")):
            try:
                yield from list(scan_source(path, f"{BUILT_IN}.{path.stem}"))
            except (SyntaxError, UnicodeDecodeError, UsageError) as error:  # one file's fault stays its own
                yield Entry(path.stem, f"{BUILT_IN}.{path.stem}", str(path), title=path.stem, broken=str(error))


def _from_entry_point(point: "EntryPoint") -> Entry:
    """The entry behind an entry point, read from source; its key is the entry point's name."""
    reference = point.value
    try:
        module_name, _, class_name = reference.partition(":")
        path = find_source(module_name)
        entry = next((e for e in scan_source(path, module_name) if e.reference == reference), None)
        if entry is None and class_name not in class_names(path):
            return Entry(point.name, reference, str(path), broken=f"{path} defines no class {class_name!r}")
    except Exception as error:  # a plug-in's fault, whatever it is, stays its own
        reason = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
        return Entry(point.name, reference, "", title=reference, broken=reason)
    if entry is not None and entry.key != point.name:
        reason = f"its entry point is named {point.name!r} and its class registers {entry.key!r}; use one name"
        return replace(entry, key=point.name, broken=reason)
    return entry or Entry(point.name, reference, str(path), class_name)


def _from_reference(reference: str) -> Entry:
    """The entry of a class in a file or a dotted module; its key is the one it registered, else the class name."""
    source, _, class_name = reference.rpartition(":")
    if not source or not class_name:
        raise UsageError(f"{reference!r} names no class; write {reference.rstrip(':')}:ClassName")
    if told := reader():
        return told.entry(reference)
    return of_class(import_class(reference), absolute(reference))


def absolute(reference: str) -> str:
    """A reference with the whole path of its file; another one as it is."""
    source, _, class_name = reference.rpartition(":")
    return f"{whole_path(source)}:{class_name}" if source.endswith(".py") else reference


def _describe_class(cls: "type[nn.Module]", reference: str) -> Entry:
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    hyperparameters = tuple(
        Hyperparameter(
            p.name,
            "typing.Any" if p.annotation is p.empty else inspect.formatannotation(p.annotation),
            None if p.default is p.empty else p.default,
        )
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )
    return Entry(cls.__name__, reference, inspect.getfile(cls), hyperparameters=hyperparameters)


def _origin(entry: Entry) -> tuple[str, str]:
    return _origin_of(entry.file, entry.reference.rpartition(":")[2])


def _origin_of(file: str, class_name: str) -> tuple[str, str]:
    return str(Path(file).resolve()), class_name


def _clash(key: str, known: Entry, other: Entry) -> UsageError:
    return UsageError(
        f"two modules are registered as {key!r}: {known.reference} ({known.file}) and "
        f"{other.reference} ({other.file}); rename one"
    )
