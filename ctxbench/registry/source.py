"""Declarations of a source file, read from its syntax tree without running it."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.registry.entry import Entry
from ctxbench.registry.hyperparameter import Hyperparameter


def find_source(dotted: str) -> Path:
    """The source file of a dotted module, found without importing its parents."""
    search: list[str] | None = None
    spec = None
    parts = dotted.split(".")
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), search)
        if spec is None:
            spec = importlib.util.find_spec(dotted) if index == 0 or parts[0] in sys.modules else None
        if spec is None:
            raise UsageError(f"there is no module {dotted!r}")
        if spec.name == dotted:
            break
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None:
        raise UsageError(f"the module {dotted!r} has no source file")
    return Path(spec.origin)


def class_names(path: Path) -> list[str]:
    tree = ast.parse(disk.read_text(path), filename=str(path))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def scan_source(path: Path, module_name: str) -> Iterator[Entry]:
    """Entries of the decorated classes of a file, read from its syntax tree."""
    tree = ast.parse(disk.read_text(path), filename=str(path))
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _called_name(decorator.func) == "register":
                try:
                    key = ast.literal_eval(decorator.args[0])
                    facts = {str(k.arg): ast.literal_eval(k.value) for k in decorator.keywords}
                    constructor = _constructor(node.name, path, module_name)
                    facts["hyperparameters"] = tuple(_hyperparameters(constructor))
                    facts["open"] = bool(constructor and constructor.args.kwarg)
                    facts["about"] = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
                    facts["details"] = ast.get_docstring(node) or ""
                    yield Entry(key, f"{module_name}:{node.name}", str(path), **facts)
                except (ValueError, TypeError, IndexError) as error:
                    raise UsageError(
                        f"{path}, line {decorator.lineno}: @register takes a key and the keywords of "
                        f"ctxbench.registry.register, and hyper-parameters have defaults, all literals ({error})"
                    ) from None


def _called_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _constructor(class_name: str, path: Path, module_name: str) -> ast.FunctionDef | None:
    """The constructor of a class, or one that it inherits from a class of its file or of a file beside that."""
    tree = ast.parse(disk.read_text(path), filename=str(path))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    beside = {
        alias.name: path.with_name(f"{(node.module or '').rpartition('.')[2]}.py")
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and (node.level == 1 or (node.module or "").rpartition(".")[0] == module_name.rpartition(".")[0])
        for alias in node.names
    }
    node = classes.get(class_name)
    for item in node.body if node else ():
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item
    for base in (base.id for base in (node.bases if node else ()) if isinstance(base, ast.Name)):
        place = path if base in classes else beside.get(base)
        if place and place.is_file() and (found := _constructor(base, place, module_name)):
            return found
    return None


def _hyperparameters(constructor: ast.FunctionDef | None) -> Iterator[Hyperparameter]:
    if constructor is None:
        return
    taken = constructor.args
    required: list[ast.expr | None] = [None] * (len(taken.args) - len(taken.defaults))
    pairs = list(zip(taken.args, [*required, *taken.defaults], strict=True))[2:]  # after self, channels
    for argument, default in (*pairs, *zip(taken.kwonlyargs, taken.kw_defaults, strict=True)):
        annotation = ast.unparse(argument.annotation) if argument.annotation else "typing.Any"
        yield Hyperparameter(argument.arg, annotation, ast.literal_eval(default) if default else None, default is None)
