"""The registry of context modules: register, find, describe and load them; nothing here imports torch by itself."""

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ctxbench.errors import ModuleCodeError, UsageError, unknown
from ctxbench.formula import evaluate

if TYPE_CHECKING:
    from torch import nn

ENTRY_POINT_GROUP = "ctxbench.modules"
BUILT_IN = "ctxbench.modules"


@dataclass(frozen=True)
class Hyperparameter:
    """One keyword of a module's constructor: its name, its type as written, its default."""

    name: str
    annotation: str
    default: Any

    def parse(self, value: Any) -> Any:
        """`value` if it is of the declared type; UsageError otherwise."""
        from pydantic import TypeAdapter, ValidationError  # slow to import, needed only here

        try:
            declared = eval(  # noqa: S307  # the annotation comes from a module file that is run anyway
                self.annotation, {"Literal": typing.Literal, "typing": typing}
            )
        except Exception:
            return value
        try:
            return TypeAdapter(declared).validate_python(value, strict=not isinstance(value, int))
        except ValidationError:
            raise UsageError(f"hyper-parameter {self.name!r} is {value!r}; it must be {self.annotation}") from None


@dataclass(frozen=True)
class Entry:
    """What is known of one context module without importing it.

    `params`, `macs` and `out_channels` are closed forms (see `ctxbench.formula`) over `B, C, H, W`, `n = H*W`,
    `N = B*n` and the hyper-parameters; a hyper-parameter that is None stands for `C`. `macs` follows torchprofile's
    convention. `reference` (`package.module:Class` or `/path/file.py:Class`) is what `load` imports.
    """

    key: str
    reference: str
    file: str
    title: str = ""
    paper: str = ""
    year: int | None = None
    family: str = "other"
    params: str | None = None
    macs: str | None = None
    out_channels: str = "C"
    hyperparameters: tuple[Hyperparameter, ...] = ()
    broken: str | None = None

    def load(self) -> "type[nn.Module]":
        """Import the module's class. This runs the code of its file."""
        if self.broken:
            raise UsageError(f"module {self.key!r} cannot be loaded: {self.broken}")
        return _import_class(self.reference)

    def build(self, channels: int, hparams: Mapping[str, Any] | None = None) -> "nn.Module":
        """Construct the module for `channels` input channels; hyper-parameters not given keep their defaults."""
        return self.load()(channels, **self.check_hparams(hparams or {}))

    def check_hparams(self, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """The given hyper-parameters, each checked against its declared name and type."""
        known = {parameter.name: parameter for parameter in self.hyperparameters}
        for name in hparams:
            if name not in known:
                raise unknown(f"hyper-parameter of {self.key!r}", name, known)
        return {name: known[name].parse(value) for name, value in hparams.items()}

    def closed_form(
        self, which: str, shape: tuple[int, int, int, int], hparams: Mapping[str, Any] | None = None
    ) -> int | None:
        """Evaluate the closed form `params`, `macs` or `out_channels` for a shape; None if none is declared."""
        formula: str | None = getattr(self, which)
        if formula is None:
            return None
        batch, channels, height, width = shape
        names: dict[str, Any] = {p.name: p.default for p in self.hyperparameters} | dict(hparams or {})
        names = {name: channels if value is None else value for name, value in names.items()}
        positions = height * width
        names |= {"B": batch, "C": channels, "H": height, "W": width}
        names |= {"n": positions, "N": batch * positions}
        return evaluate(formula, names)


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
) -> Callable[["type[nn.Module]"], "type[nn.Module]"]:
    """Class decorator that puts an `nn.Module` into the registry under `key`.

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
        )
        known = _registered.get(key) or _discovered().get(key)
        if known is not None and _origin(known) != _origin(entry):
            raise _clash(key, known, entry)
        _registered[key] = known or entry
        return cls

    return decorate


def names() -> list[str]:
    """All keys: the built-in modules, those of installed packages, and those registered by running code."""
    return sorted({**_discovered(), **_registered})


def entries() -> list[Entry]:
    """All entries, in the order of their keys."""
    return [get(name) for name in names()]


def get(name: str) -> Entry:
    """The entry of a registered key, of `path/file.py:Class`, or of `package.module:Class`.

    The last two import the class. Raises UsageError with the nearest known name for an unknown key.
    """
    if ":" in name or name.endswith(".py"):
        return _from_reference(name)
    known = {**_discovered(), **_registered}
    if name not in known:
        raise unknown("module", name, known)
    return known[name]


def means(name: str, key: str, reference: str) -> bool:
    """Whether a name in a suite or a command is this module's: its key, class or reference (a path may be relative)."""
    return name in (key, reference, reference.rpartition(":")[2]) or (":" in name and _absolute(name) == reference)


def of_class(cls: "type[nn.Module]", reference: str | None = None) -> Entry:
    """The entry of a class that is at hand: as it was registered, else described by its constructor."""
    reference = reference or f"{inspect.getfile(cls)}:{cls.__qualname__}"
    for entry in _registered.values():
        if _origin(entry) == _origin_of(inspect.getfile(cls), cls.__qualname__):
            return replace(entry, reference=reference)
    return replace(_describe_class(cls, reference), key=cls.__name__, title=cls.__name__)


def reference_of(cls: "type[nn.Module]") -> str:
    """What names a class for another process: `package.module:Class`, or `/path/file.py:Class` outside a package.

    UsageError for a class of the running script or notebook: another process would have to run that again.
    """
    if cls.__module__ == "__main__":
        raise UsageError(f"the class {cls.__qualname__} is in the running script; put it into a file of its own")
    source = cls.__module__ if "." in cls.__module__ else str(Path(inspect.getfile(cls)).resolve())
    return f"{source}:{cls.__qualname__}"


@cache
def _discovered() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in _scan_built_in():
        known = found.get(entry.key)
        if known is not None:
            raise _clash(entry.key, known, entry)
        found[entry.key] = entry
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
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
                yield from list(_scan_source(path, f"{BUILT_IN}.{path.stem}"))
            except (SyntaxError, UnicodeDecodeError, UsageError) as error:  # one file's fault stays its own
                yield Entry(path.stem, f"{BUILT_IN}.{path.stem}", str(path), title=path.stem, broken=str(error))


def _from_entry_point(point: importlib.metadata.EntryPoint) -> Entry:
    """The entry behind an entry point, read from source; its key is the entry point's name."""
    reference = point.value
    try:
        module_name, _, class_name = reference.partition(":")
        path = _find_source(module_name)
        entry = next((e for e in _scan_source(path, module_name) if e.reference == reference), None)
        if entry is None and class_name not in _class_names(path):
            return Entry(point.name, reference, str(path), broken=f"{path} defines no class {class_name!r}")
    except Exception as error:  # a plug-in's fault, whatever it is, stays its own
        reason = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
        return Entry(point.name, reference, "", title=reference, broken=reason)
    if entry is not None and entry.key != point.name:
        reason = f"its entry point is named {point.name!r} and its class registers {entry.key!r}; use one name"
        return replace(entry, key=point.name, broken=reason)
    return entry or Entry(point.name, reference, str(path), class_name)


def _find_source(dotted: str) -> Path:
    """The source file of a dotted module, found without importing its parents."""
    search: list[str] | None = None
    spec = None
    parts = dotted.split(".")
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), search)
        if spec is None:
            spec = importlib.util.find_spec(dotted) if index == 0 else None
        if spec is None:
            raise UsageError(f"there is no module {dotted!r}")
        if spec.name == dotted:
            break
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None:
        raise UsageError(f"the module {dotted!r} has no source file")
    return Path(spec.origin)


def _class_names(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _scan_source(path: Path, module_name: str) -> Iterator[Entry]:
    """Entries of the decorated classes of a file, read from its syntax tree."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _called_name(decorator.func) == "register":
                try:
                    key = ast.literal_eval(decorator.args[0])
                    facts = {str(k.arg): ast.literal_eval(k.value) for k in decorator.keywords}
                    facts["hyperparameters"] = tuple(_source_hyperparameters(node))
                    yield Entry(key, f"{module_name}:{node.name}", str(path), **facts)
                except (ValueError, TypeError, IndexError) as error:
                    raise UsageError(
                        f"{path}, line {decorator.lineno}: @register takes a key and the keywords of "
                        f"ctxbench.registry.register, and hyper-parameters have defaults, all literals ({error})"
                    ) from None


def _called_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _source_hyperparameters(node: ast.ClassDef) -> Iterator[Hyperparameter]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            positional = item.args.args
            required: list[ast.expr | None] = [None] * (len(positional) - len(item.args.defaults))
            pairs = list(zip(positional, [*required, *item.args.defaults], strict=True))[2:]  # after self, channels
            pairs += zip(item.args.kwonlyargs, item.args.kw_defaults, strict=True)
            for argument, default in pairs:
                annotation = ast.unparse(argument.annotation) if argument.annotation else "typing.Any"
                yield Hyperparameter(argument.arg, annotation, ast.literal_eval(default) if default else None)


def _from_reference(reference: str) -> Entry:
    """The entry of a class in a file or a dotted module; its key is the one it registered, else the class name."""
    source, _, class_name = reference.rpartition(":")
    if not source or not class_name:
        raise UsageError(f"{reference!r} names no class; write {reference.rstrip(':')}:ClassName")
    return of_class(_import_class(reference), _absolute(reference))


def _absolute(reference: str) -> str:
    source, _, class_name = reference.rpartition(":")
    return f"{Path(source).resolve()}:{class_name}" if source.endswith(".py") else reference


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


def _import_class(reference: str) -> "type[nn.Module]":
    source, _, class_name = reference.rpartition(":")
    module = _import_file(Path(source)) if source.endswith(".py") else _import_dotted(source)
    found = getattr(module, class_name, None)
    from torch import nn

    if found is None:
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        raise unknown(f"class in {source}", class_name, classes)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UsageError(f"{reference} is no subclass of torch.nn.Module")
    return found


def _import_dotted(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"there is no module {name!r} to import") from None
        raise ModuleCodeError(name, error) from error
    except UsageError:
        raise
    except Exception as error:
        raise ModuleCodeError(name, error) from error


def _import_file(path: Path) -> ModuleType:
    """Run a Python file once per process, under a name made from its path."""
    path = path.resolve()
    name = "ctxbench_file_" + json.dumps(str(path)).strip('"').replace("/", "_").replace(".", "_")
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UsageError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise ModuleCodeError(str(path), error) from error
    return module


def _origin(entry: Entry) -> tuple[str, str]:
    return _origin_of(entry.file, entry.reference.rpartition(":")[2])


def _origin_of(file: str, class_name: str) -> tuple[str, str]:
    return str(Path(file).resolve()), class_name


def _clash(key: str, known: Entry, other: Entry) -> UsageError:
    return UsageError(
        f"two modules are registered as {key!r}: {known.reference} ({known.file}) and "
        f"{other.reference} ({other.file}); rename one"
    )
