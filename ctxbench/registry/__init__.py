"""The registry of context modules: register, find, describe and load them; nothing here imports torch by itself."""

import importlib.util
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ctxbench.base.call_sites import is_library
from ctxbench.base.errors import UsageError, unknown
from ctxbench.registry.entry import Entry
from ctxbench.registry.load import import_maker
from ctxbench.registry.maker import Maker, maker_of_function, name_of
from ctxbench.registry.objects import store
from ctxbench.registry.reader import reader
from ctxbench.registry.reference import Reference
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
    stops_gradient: bool | str = False,
    listed: bool = True,
    public_code: str = "",
) -> Callable[["type[nn.Module]"], "type[nn.Module]"]:
    """Put an `nn.Module` into the registry: a decorator of its class.

    The class takes `channels` first and then typed keyword hyper-parameters, each with a default. Give every argument
    of the decorator as a literal: `ctxbench list` reads it from the source without running the file. A closed form is
    over B, C, H, W, n = H*W, N = B*n and the hyper-parameters.

    Args:
        key: The module's name in commands and tables.
        title: Its name in tables for readers.
        paper, year: Where it was published.
        family: Modules of one family have one colour in figures; docs/bring-your-own.md lists the families.
        params, macs: Closed forms of the number of parameters, and of the MACs of a pass.
        out_channels: Closed form of the number of output channels.
        complexity: Growth of the MACs in n and C, for readers.
        position_mixing: Whether an output depends on which far position a value is at, or a condition for it.
        reach: Closed form of the number of positions that the one in the centre reaches, or "by content".
        stops_gradient: Whether a part is computed without a gradient on purpose, or a condition for it.
        listed: Whether `ctxbench list` has it; one that is not is known by its key alone.
        public_code: Where another version is, with its licence.

    Returns:
        The decorator, which returns the class itself.

    Raises:
        UsageError: If another class holds the key.

    Example:
        >>> from torch import nn
        >>> @ctxbench.register("my_norm", title="My norm", params="2*C")
        ... class MyNorm(nn.BatchNorm2d):
        ...     def __init__(self, channels: int, *, eps: float = 1e-5) -> None:
        ...         super().__init__(channels, eps=eps)
    """
    facts = locals()  # fields of an entry, all of them

    def decorate(cls: "type[nn.Module]") -> "type[nn.Module]":
        described = _describe_class(cls, f"{inspect.getfile(cls)}:{cls.__qualname__}")
        entry = replace(described, **facts, declared=True)
        known = _registered.get(key) or _discovered().get(key)
        if known is not None and _origin(known) != _origin(entry):
            raise _clash(key, known, entry)
        _registered[key] = known or entry
        return cls

    return decorate


def names() -> list[str]:
    """The keys that are listed: built-in modules, those of installed packages, those registered by running code."""
    return sorted(key for key, entry in _known().items() if entry.listed)


def entries() -> list[Entry]:
    """All entries, in the order of their keys."""
    return [get(name) for name in names()]


def get(name: str | Reference) -> Entry:
    """The entry of a registered key, of `path/file.py:Class`, or of `package.module:Class`; a text is a person's.

    The last two import the class, here or where the process's reader does. Raises UsageError with the nearest known
    name for an unknown key.
    """
    reference = Reference.parse(name) if isinstance(name, str) else name
    if not reference.is_key:
        return replace(_from_reference(reference), said_by=reference.said_by)
    if reference.name not in _known():
        package, dot, class_name = reference.name.rpartition(".")
        if dot:
            raise UsageError(f"unknown module {reference.name!r}; a class of a package is {package}:{class_name}")
        raise unknown("module", reference.name, names())
    return _known()[reference.name]


def means(name: str, key: str, reference: str) -> bool:
    """True if a name in a suite or a command is this module's: its key or reference (a path may be relative).

    So is the name of its class, but where that is a key of the registry: a key never means another module.
    """
    named = Reference.parse(name)
    return name == key or (own_name(reference) == name if named.is_key else str(named.whole) == reference)


def own_name(reference: str, name: str = "") -> str:
    """The name of a module in tables and options unless its class registers a key: that of the class.

    A class that is called as a key of the registry has the name of its file, or package, before: `mine.se`. `name` is
    that of a class which its file calls otherwise.
    """
    named = Reference.parse(reference)
    name = name or named.name
    return f"{named.place}.{name}" if not named.is_key and name in _known() else name


def of_class(cls: "Callable[..., nn.Module]", reference: str | None = None) -> Entry:
    """The entry of a class, or of a function, at hand: as it was registered, else described by its parameters."""
    reference = reference or f"{inspect.getfile(cls)}:{cls.__qualname__}"
    for entry in _registered.values():
        if _origin(entry) == _origin_of(inspect.getfile(cls), cls.__qualname__):
            return replace(entry, reference=reference)
    return replace(_describe_class(cls, reference), key=own_name(reference, cls.__name__), title=cls.__name__)


def references_of(things: "Iterable[str | Callable[..., nn.Module]]") -> list[str]:
    """References for another process, of names (which stay), classes, functions of `channels`, and instances.

    UsageError for anything else.
    """
    found: list[str] = []
    taken: Counter[str] = Counter()
    for each in things:
        if isinstance(each, str):
            found.append(each)
            continue
        if not callable(each):
            raise UsageError(
                f"modules holds {type(each).__name__}; it takes names such as 'sa' or 'path.py:Class', classes, "
                "functions of the number of channels, and instances"
            )
        if isinstance(each, type) and each.__module__ != "__main__" and "." not in each.__qualname__:
            file = Path(inspect.getfile(each)).resolve()
            installed = is_library(file) or each.__module__.startswith(f"{BUILT_IN}.")
            found.append(f"{each.__module__ if installed else file}:{each.__qualname__}")
            continue
        name = name_of(each)
        taken[name] += 1
        found.append(store(each, f"{name}_{taken[name]}" if taken[name] > 1 else name))
    return found


def _known() -> dict[str, Entry]:
    return {**_discovered(), **_registered}


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
        module_name, class_name = (named := Reference.parse(reference)).source or named.name, named.name
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


def _from_reference(reference: Reference) -> Entry:
    """The entry of a class in a file or a dotted module; its key is the one it registered, else its own name."""
    if not reference.name:
        raise UsageError(f"{reference.source!r} names no class; write {reference.source}:ClassName")
    whole = str(reference.whole)
    if own := next((entry for entry in _discovered().values() if entry.reference == whole), None):
        return own
    if elsewhere := reader():
        return elsewhere.entry(reference)
    made, name = import_maker(reference), own_name(whole)
    if not isinstance(made, Maker):
        if reference.is_object:  # a class of a notebook has no file
            maker = maker_of_function(reference.name, made)
            facts = {each: getattr(maker, each) for each in ("hyperparameters", "open", "width")}
            return Entry(name, whole, reference.source, reference.name, declared=False, **facts)
        return of_class(made, whole)
    if isinstance(made.function, type) and not reference.is_object:
        entry = of_class(made.function, whole)
    else:
        at_path = reference.is_file or reference.is_object
        file = reference.whole.source if at_path else find_source(reference.source)
        entry = Entry(name, whole, str(file), reference.name, declared=False)
    known = ("given", "hyperparameters", "made_for", "open", "takes", "width")
    return replace(entry, **{name: getattr(made, name) for name in known})


def absolute(reference: str) -> str:
    """A reference with the whole path of its file; another one as it is."""
    return str(Reference.parse(reference).whole)


def _describe_class(cls: "Callable[..., nn.Module]", reference: str) -> Entry:
    maker = maker_of_function(cls.__name__, cls)
    facts = {name: getattr(maker, name) for name in ("given", "hyperparameters", "open", "width")}
    return Entry(cls.__name__, reference, inspect.getfile(cls), declared=False, **facts)


def _origin(entry: Entry) -> tuple[str, str]:
    return _origin_of(entry.file, Reference.parse(entry.reference).name)


def _origin_of(file: str, class_name: str) -> tuple[str, str]:
    return str(Path(file).resolve()), class_name


def _clash(key: str, known: Entry, other: Entry) -> UsageError:
    return UsageError(
        f"two modules are registered as {key!r}: {known.reference} ({known.file}) and "
        f"{other.reference} ({other.file}); rename one"
    )
