"""Files that a module's own file needs: by its imports, not by what a package's `__init__` brings in beside."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from ctxbench.base import disk


def needed(root: Path, start: Collection[str], loaded: Collection[str]) -> set[str]:
    """Names from `root` of the `start` files and of the `loaded` Python files that they import, directly or not.

    An `__init__` is needed by who takes a name of it. A file that cannot be read needs all that was loaded.
    """
    files = {*loaded}
    found: set[str] = {*start} & files
    waiting = [*found]
    while waiting:
        file = waiting.pop()
        try:
            tree = ast.parse(disk.read_bytes(root / file))
        except (OSError, SyntaxError, ValueError):
            return files
        more = {each for names in _imported(tree, file) for each in _first(names, files)} - found
        found |= more
        waiting += more
    return found


def _imported(tree: ast.AST, file: str) -> Iterator[tuple[str, ...]]:
    """Of each name that a file imports, the modules that it may be of, dotted from the root, the innermost first."""
    package = PurePosixPath(file).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*own, *filter(None, [node.module])])
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def _first(names: Collection[str], files: Collection[str]) -> list[str]:
    """The files that the first of these modules that there is may be, wherever below the root its package lies."""
    for name in names:
        path = name.replace(".", "/")
        ends = f"/{path}.py", f"/{path}/__init__.py"
        if found := [each for each in files if f"/{each}".endswith(ends)]:
            return found
    return []
