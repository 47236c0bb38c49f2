"""Checks the import rules of pyproject.toml on ctxbench as it installs, with report/, modules/, networks/ and suites/.

`python tests/import_rules.py`. In the source tree these folders lie beside ctxbench/, where import-linter does not see
an import of `ctxbench.report` or `ctxbench.modules`.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(planted: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What import-linter says, with the lines `planted` at the ends of files, by their paths in the repository."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
    with tempfile.TemporaryDirectory() as folder:
        for name, source in packages.items():
            installed = Path(folder, *name.split("."))
            shutil.copytree(ROOT / source, installed)
            for path in planted:
                if Path(path).parts[0] == source:
                    with (installed / Path(path).relative_to(source)).open("a", encoding="utf-8") as file:
                        file.write(f"{planted[path]}\n")
        command = [
            sys.executable,
            "-E",
            "-c",
            LINT,
            "--no-logo",
            "--no-cache",
            "--config",
            str(ROOT / "pyproject.toml"),
        ]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    done = lint({})
    print(done.stdout + done.stderr, end="")
    sys.exit(done.returncode)
