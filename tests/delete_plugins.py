"""Proves plugins by deletion: in a copy, the folder, the tests and the page of a plugin go, and of those that need it.

`python tests/delete_plugins.py [--no-tests] [PLUGIN]...`: without names, of each. What is left must keep the rules of
`make lint`, its quick tests must pass, its help must not name the commands that went, and the docs must build. Programs
outside of the package, and tests of several plugins at once, go with a plugin that they import; they are counted.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from import_rules import ROOT, imported_plugins

from ctxbench.plugin import plugins

# What has the programs and tests that may go with a plugin.
OUTSIDE = ("tests", "benchmarks", "docs")
QUICK = "not processes and not timing and not slow and not long"
# The name under which pytest knows the plugin `pytest`.
FIXTURE = "ctxbench"


@dataclass(frozen=True)
class Proof:
    """Proof of a deletion: files gone with a plugin, tests left, and failures, of which there should be none."""

    name: str
    gone: Sequence[str]
    files: int
    lines: int
    others: Sequence[str]
    tests: str
    broken: Sequence[str]
    seconds: float

    def __str__(self) -> str:
        told = "; ".join(self.broken) or "well"
        return (
            f"{self.name}: {', '.join(self.gone)} went ({self.files} files, {self.lines:,} lines), and "
            f"{', '.join(self.others) or 'nothing else'}; {self.tests}; {told} ({self.seconds:.0f} s)"
        )


def with_dependents(name: str) -> list[str]:
    """A plugin, and those that cannot be without it."""
    gone = {name}
    while more := {other for other, plugin in plugins().items() if gone & {*plugin.needs}} - gone:
        gone |= more
    return sorted(gone)


def places(name: str) -> list[Path]:
    """Paths of a plugin, from the root of the repository."""
    return [Path("ctxbench/plugins") / name, Path("tests/plugins") / name, Path(f"docs/plugins/{name}.md")]


def copied(root: Path) -> None:
    """A repository with the files that are here, whether they are committed or not."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(root)], check=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
        else:
            (root / name).unlink(missing_ok=True)
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", root / ".mypy_cache")


def interpreter(root: Path, folder: Path) -> Path:
    """A Python that imports ctxbench from the copy, and all else from where this one has it."""
    venv.create(folder, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    there = folder / here.relative_to(sys.prefix)
    (there / "others.pth").write_text(f"{here}\n", encoding="utf-8")
    for path in here.glob("__editable__*ctxbench*"):
        text = path.read_text(encoding="utf-8").replace(str(ROOT), str(root))
        (there / path.name).write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def remove(root: Path, gone: Set[str]) -> tuple[int, int, list[str]]:
    """Remove plugins: how many files and lines they had, and what else imports one of them, which is removed, too."""
    files = [path for name in gone for place in places(name) for path in _files(root / place)]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    for name in gone:
        for place in places(name):
            shutil.rmtree(root / place, ignore_errors=True)
            (root / place).unlink(missing_ok=True)
    went = {path.stem for path in files if "tests" in path.parts}
    others: list[str] = []
    left = [path for folder in OUTSIDE for path in sorted((root / folder).rglob("*.py"))]
    while taken := [
        path for path in left if went & imported(path) or gone & {each for _, each in imported_plugins(path)}
    ]:
        others += [path.relative_to(root).as_posix() for path in taken]
        went |= {path.stem for path in taken}
        left = [path for path in left if path not in taken]
        for path in taken:
            path.unlink()
    return len(files), lines, others


def imported(path: Path) -> set[str]:
    """The first names of what a file imports."""
    text = path.read_text(encoding="utf-8")
    found = {*re.findall(r'importlib\.import_module\("(\w+)"\)', text)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
    return found


def _files(place: Path) -> Iterator[Path]:
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path


def prove(name: str, tests: bool = True) -> Proof:
    """Remove a plugin in a copy, and look whether what is left holds."""
    started, gone = time.monotonic(), with_dependents(name)
    commands = [command for each in gone for command in plugins()[each].commands]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "copy")
        copied(root)
        python = str(interpreter(root, Path(folder, "python")))
        files, lines, others = remove(root, {*gone})
        broken: list[str] = []

        def run(what: str, *arguments: str) -> str:
            command = [python, *arguments]
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=_environment())
            if done.returncode:
                broken.append(f"{what}: {_last(done.stdout + done.stderr)}")
            return done.stdout

        shown = run("help", "-m", "ctxbench", "--help")
        named = [command for command in commands if re.search(rf"^  {command}\s", shown, re.MULTILINE)]
        broken += [f"the help names {command}" for command in named]
        run("ruff", "-m", "ruff", "check", "--quiet", ".")
        run("mypy", "-m", "mypy")
        run("import rules", "tests/import_rules.py")
        run("docs", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", f"{folder}/site")
        ended = "not tested"
        if tests:
            options = ["-p", "no:cacheprovider", *["-p", f"no:{FIXTURE}"] * ("pytest" in gone)]
            report = run("tests", "-m", "pytest", *options, "-n", "2", "--dist", "loadscope", "-m", QUICK)
            ended = next(reversed(re.findall(r"^.*\d+ passed.*$", report, re.MULTILINE)), "no test passed")
            broken += re.findall(r"^(?:FAILED|ERROR) .*$", report, re.MULTILINE)
    return Proof(name, gone, files, lines, others, ended, broken, time.monotonic() - started)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}


def _last(output: str) -> str:
    return " | ".join(output.strip().splitlines()[-3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tests", action="store_true", help="leave out the tests")
    parser.add_argument("names", nargs="*", metavar="PLUGIN", help=", ".join(plugins()))
    asked = parser.parse_args()
    failed = False
    for name in asked.names or plugins():
        proof = prove(name, tests=not asked.no_tests)
        print(proof, flush=True)
        failed |= bool(proof.broken)
    sys.exit(failed)


if __name__ == "__main__":
    main()
