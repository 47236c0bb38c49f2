"""Checks the import rules of pyproject.toml on ctxbench as it installs, with report/, modules/, networks/ and suites/,
and that a plugin imports no other than those that it needs.

`python tests/import_rules.py`. In the source tree these folders lie beside ctxbench/, where import-linter does not see
an import of `ctxbench.report` or `ctxbench.modules`.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxbench.plugin import FOLDER, plugins

ROOT = Path(__file__).parents[1]
SCIENCE = "ctxbench_science"
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def lint(planted: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Output of import-linter, with the lines `planted` at the ends of files, by their paths in the repository."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
    packages[SCIENCE] = f"science/{SCIENCE}"
    with tempfile.TemporaryDirectory() as folder:
        for name, source in packages.items():
            installed = Path(folder, *name.split("."))
            shutil.copytree(ROOT / source, installed)
            for path in planted:
                if Path(path).is_relative_to(source):
                    with (installed / Path(path).relative_to(source)).open("a", encoding="utf-8") as file:
                        file.write(f"{planted[path]}\n")
        command = [sys.executable, "-E", "-c", LINT, str(ROOT / "pyproject.toml")]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def not_needed() -> list[str]:
    """A line for each import of a plugin by another one that does not declare that it needs it."""
    found = []
    for name, plugin in plugins().items():
        for path in sorted((ROOT / folder_of(name)).rglob("*.py")):
            for line, other in imported_plugins(path):
                if other not in (name, *plugin.needs):
                    found.append(
                        f"{path.relative_to(ROOT)}:{line} imports the plugin {other}, which is no need of {name}"
                    )
    return found


def imported_plugins(path: Path, at_once: bool = False) -> Iterator[tuple[int, str]]:
    """The plugins that a file imports, by line; `at_once`: as it is itself imported, not within a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        names = [f"{package}{each.name}" for each in node.names]
        found = [each.split(".") for each in names]
        inside = [each[2:] if each[:2] == FOLDER.split(".") else each[1:] * (each[0] == SCIENCE) for each in found]
        for name in dict.fromkeys(each[0] for each in inside if each):
            yield node.lineno, name


def folder_of(name: str) -> Path:
    """The folder of a plugin, from the root of the repository."""
    package = plugins()[name].package.split(".")
    return Path("science" if package[0] == SCIENCE else "", *package)


if __name__ == "__main__":
    done, unneeded = lint({}), not_needed()
    print(done.stdout + done.stderr, *unneeded, sep="\n")
    sys.exit(done.returncode or bool(unneeded))
