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
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def lint(planted: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Output of import-linter, with the lines `planted` at the ends of files, by their paths in the repository."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
    with tempfile.TemporaryDirectory() as folder:
        for name, source in packages.items():
            installed = Path(folder, *name.split("."))
            shutil.copytree(ROOT / source, installed)
            for path in planted:
                if Path(path).parts[0] == source:
                    with (installed / Path(path).relative_to(source)).open("a", encoding="utf-8") as file:
                        file.write(f"{planted[path]}\n")
        command = [sys.executable, "-E", "-c", LINT, str(ROOT / "pyproject.toml")]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def not_needed() -> list[str]:
    """A line for each import of a plugin by another one that does not declare that it needs it."""
    found = []
    for name, plugin in plugins().items():
        folder = ROOT / "ctxbench" / "plugins" / name
        for path in sorted(folder.rglob("*.py")) if plugin.package.startswith(FOLDER) else ():
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
        for name in dict.fromkeys(each.split(".")[2] for each in names if each.startswith(f"{FOLDER}.")):
            yield node.lineno, name


if __name__ == "__main__":
    done, unneeded = lint({}), not_needed()
    print(done.stdout + done.stderr, *unneeded, sep="\n")
    sys.exit(done.returncode or bool(unneeded))
