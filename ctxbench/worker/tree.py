"""Makes a process take modules from a given source tree, with the installed harness around them."""

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

# In a source tree of ctxbench itself, this folder installs as `ctxbench.modules`.
MODULES = "modules"


def enter_tree(root: Path) -> None:
    """Put a tree (and its `src`) first on the module search path and make it the working folder.

    `ctxbench` is imported by now, so that its submodules are the installed harness's, even where the tree has a
    `ctxbench` folder. In a source tree of ctxbench, `ctxbench.modules` becomes the tree's.
    """
    sys.path[:0] = [str(folder) for folder in (root, root / "src") if folder.is_dir()]
    os.chdir(root)
    if is_ctxbench(root):
        _use_modules(root / MODULES)


def is_ctxbench(root: Path) -> bool:
    """Return whether the tree is ctxbench's own source."""
    return all((root / folder / "__init__.py").is_file() for folder in (MODULES, "ctxbench"))


def _use_modules(folder: Path) -> None:
    name = "ctxbench.modules"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is no package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)


def own_file(file: str, root: Path) -> bool:
    """Return whether a file belongs to the tree, and not to an environment that happens to lie inside it."""
    return _own_folder(os.path.dirname(os.path.realpath(file) if os.path.islink(file) else file), root)


@cache
def _own_folder(folder: str, root: Path) -> bool:
    top, environment = (os.path.join(_real(str(each)), "") for each in (root, sys.prefix))
    path = os.path.join(_real(folder), "")
    inside = environment != top and environment.startswith(top)
    return path.startswith(top) and not (inside and path.startswith(environment))


# A folder's parents are looked up once for all that lie in them: a process has imported from some 500 folders.
@cache
def _real(folder: str) -> str:
    parent, name = os.path.split(os.path.abspath(folder))
    path = os.path.join(_real(parent), name) if name else parent
    return os.path.realpath(path) if os.path.islink(path) else path
