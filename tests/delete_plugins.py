"""Proves plugins by deletion, in copies of the repository.

`python tests/delete_plugins.py [PLUGIN]...`: without names, first a copy without any plugin that can go, whose quick
tests must pass; then, for each, a copy with this one and what it `needs` alone, whose quick tests must pass. With
`--without`, copies without the plugins named, and without those that need them: all quick tests that are left must
pass, minutes for each. In every copy all suites are read, and the help names no command that went. Where all tests run,
what is left keeps the rules of `make lint`, too, and the docs build. Programs outside of the package go with a plugin
that they import.
"""

import argparse
import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from import_rules import ROOT, folder_of, imported_plugins
from tracked import copy_to, interpreter

from ctxbench.base.code import without_docstrings
from ctxbench.plugin import FOLDER, NAMED, plugins

# What has the programs and tests that may go with a plugin.
OUTSIDE = ("tests", "benchmarks", "research", "docs")
# The metrics that most suites are about: without these plugins the suites of the core cannot be read.
FIGURES = ("macs", "memory")
QUICK = "not processes and not timing and not slow and not long"
# Where a plugin has no quick test.
SLOWER = "not timing and not long"
SUITES = "from ctxbench.model.read_suite import available, load; [load(name) for name in available()]"
# Exit code of pytest.
NO_TESTS = 5
# The name under which pytest knows the plugin `pytest`.
FIXTURE = "ctxbench"


@dataclass(frozen=True)
class Proof:
    """Proof by a copy: its plugins, size of what it is about, its tests, and failures, of which none should be.

    It is about the plugin that is left with what it needs, or about those that went.
    """

    name: str
    left: Sequence[str]
    files: int
    lines: int
    tests: str
    broken: Sequence[str]
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.files} files, {self.lines:,} lines; left: {', '.join(self.left)}; {self.tests}; "
            f"{'; '.join(self.broken) or 'well'} ({self.seconds:.0f} s)"
        )


def deletable() -> list[str]:
    """The plugins that can go."""
    return [name for name in plugins() if name not in FIGURES]


def with_needs(name: str) -> set[str]:
    """A plugin, what it cannot be without, and what no run can be without."""
    return {name, *FIGURES}.union(*(with_needs(need) for need in plugins()[name].needs))


def with_dependents(name: str) -> list[str]:
    """A plugin, and those that cannot be without it."""
    gone = {name}
    while more := {other for other, plugin in plugins().items() if gone & {*plugin.needs}} - gone:
        gone |= more
    return sorted(gone)


def places(name: str) -> list[Path]:
    """Paths of a plugin, from the root of the repository: folder, tests, page, and the pages of its suites."""
    folder = folder_of(name)
    suites = [Path(f"docs/suites/{path.stem}.md") for path in (ROOT / folder / "suites").glob("*.toml")]
    return [folder, tests_of(name), Path(f"docs/plugins/{name}.md"), *suites]


def tests_of(name: str) -> Path:
    """The folder of a plugin's tests, from the root of the repository."""
    return Path("tests", "science" if folder_of(name).parts[0] == "science" else "plugins", name)


def size(names: Iterable[str]) -> tuple[int, int]:
    """Number of the files of plugins, and of their lines."""
    files = [path for name in names for place in places(name) for path in _files(ROOT / place)]
    return len(files), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def remove(root: Path, gone: Set[str]) -> list[str]:
    """Remove plugins, and what else imports one of them, which is told."""
    went = {path.stem for name in gone for path in _files(root / tests_of(name))}
    for name in gone:
        for place in places(name):
            shutil.rmtree(root / place, ignore_errors=True)
            (root / place).unlink(missing_ok=True)
    left = [path for folder in OUTSIDE for path in sorted((root / folder).rglob("*.py"))]
    taken = importers(left, went, gone)
    for path in taken:
        path.unlink()
    return [path.relative_to(root).as_posix() for path in taken]


def copy_caches(root: Path) -> None:
    """Take along what was compiled and checked of the files here: the copies have their sizes and times.

    What pytest compiles has the paths of here.
    """
    for folder in {Path(), *(path.relative_to(root).parent for path in root.rglob("*.py"))}:
        for made in (".mypy_cache", "__pycache__"):
            if (ROOT / folder / made).is_dir():
                ignored = shutil.ignore_patterns("*-pytest-*")
                shutil.copytree(ROOT / folder / made, root / folder / made, ignore=ignored, dirs_exist_ok=True)


def ignore_missing(config: Path, gone: Iterable[str]) -> None:
    """Let mypy pass over imports of plugins that went, which tests have in their functions; that none else has any,
    the import rules say. A flag for all imports would have mypy check all files anew.
    """
    packages = [plugins()[name].package for name in gone]
    names = [name for package in packages for name in (package, f"{package}.*")]
    with config.open("a", encoding="utf-8") as file:
        file.write(f"\n[[tool.mypy.overrides]]\nmodule = {names}\nignore_missing_imports = true\n")


def importers(paths: Sequence[Path], stems: Set[str], gone: Set[str]) -> list[Path]:
    """Files that import a plugin which is `gone`, one of the modules `stems`, or such a file."""
    found: list[Path] = []
    left, went = list(paths), {*stems}
    while more := [path for path in left if went & imported(path) or gone & _at_once(path)]:
        found += more
        went |= {path.stem for path in more}
        left = [path for path in left if path not in more]
    return found


def words(name: str) -> set[str]:
    """The names that are a plugin's alone: columns, numbers, settings, commands, questions, codes of notes, keys of
    suites, and its own.
    """
    plugin = plugins()[name]
    metrics = [plugin.load(reference) for reference in plugin.metrics]
    found = {name, *(key for kind in ("counters", *NAMED) for key in getattr(plugin, kind))}
    for metric in metrics:
        found |= {metric.name, *(each.name for each in metric.columns), *(each.key for each in metric.quantities)}
        found |= {*(metric.settings.model_fields if metric.settings else ())}
    return found


def words_in(path: Path) -> set[str]:
    """The names in a file's code and the words of its texts, without docstrings and comments."""
    found: set[str] = set()
    for node in ast.walk(without_docstrings(path.read_text(encoding="utf-8"))):
        for text in (getattr(node, key, None) for key in ("id", "attr", "arg", "name", "value")):
            found |= {*re.findall(r"[\w-]+", text)} if isinstance(text, str) else set()
    return found


def other_tests(name: str) -> list[str]:
    """The tests that go with a plugin, and those that need it, though they are none of theirs."""
    gone = {*with_dependents(name)}
    own = [ROOT / place for each in gone for place in places(each) if place.parts[0] == "tests"]
    paths = sorted((ROOT / "tests").rglob("*.py"))
    stems = {path.stem for path in paths if {*own} & {*path.parents}}
    left = [path for path in paths if not {*own} & {*path.parents}]
    return [path.relative_to(ROOT).as_posix() for path in importers(left, stems, gone)]


@cache
def _at_once(path: Path) -> frozenset[str]:
    return frozenset(name for _, name in imported_plugins(path, at_once=True))


def linked(root: Path, gone: Set[str]) -> None:
    """The package without some plugins, as links to the files that are here."""
    for path in (ROOT / "ctxbench").iterdir():
        if path.name != "plugins":
            (root / "ctxbench").mkdir(exist_ok=True)
            (root / "ctxbench" / path.name).symlink_to(path)
    for folder, to in (("ctxbench/plugins", "ctxbench/plugins"), ("science/ctxbench_science", "ctxbench_science")):
        (root / to).mkdir()
        for path in (ROOT / folder).iterdir():
            if path.name not in gone:
                (root / to / path.name).symlink_to(path)
    declare_science(root, gone)


def declare_science(site: Path, gone: Set[str]) -> None:
    """Tell a Python that has `site` first on its path of the plugins of ctxbench-science that are left."""
    project = tomllib.loads((ROOT / "science" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = {name: package for name, package in project["entry-points"][FOLDER].items() if name not in gone}
    told = site / f"ctxbench_science-{project['version']}.dist-info"
    told.mkdir()
    needs = [f"Requires-Dist: {each}" for each in project["dependencies"]]
    (told / "METADATA").write_text(
        "\n".join([f"Name: {project['name']}", f"Version: {project['version']}", *needs, ""])
    )
    (told / "entry_points.txt").write_text("\n".join([f"[{FOLDER}]", *(f"{n} = {p}" for n, p in points.items())]))


@cache  # all files are read for each plugin
def imported(path: Path) -> frozenset[str]:
    """The first names of what a file imports."""
    text = path.read_text(encoding="utf-8")
    found = {*re.findall(r'importlib\.import_module\("(\w+)"\)', text)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
    return frozenset(found)


def _files(place: Path) -> Iterator[Path]:
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path


def core() -> Proof:
    """Proof that the core needs no plugin but those that cannot go."""
    return prove("core", {*FIGURES})


def alone(name: str) -> Proof:
    """Proof that a plugin needs no other than it says: its quick tests, or all if none is, pass with these alone."""
    return prove(name, with_needs(name), str(tests_of(name)))


def without(name: str) -> Proof:
    """Proof that nothing needs a plugin but those that say so: the quick tests pass without them."""
    return prove(name, {*plugins()} - {*with_dependents(name)})


def prove(name: str, left: Set[str], *paths: str) -> Proof:
    """Look whether a copy with the plugins `left` holds: of `paths` the tests, of none the rules and docs, too."""
    started, gone = time.monotonic(), {*plugins()} - left
    commands = [command for each in gone for command in plugins()[each].commands]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "copy")
        copy_to(root)
        copy_caches(root)
        python = str(interpreter(root, Path(folder, "python")))
        declare_science(next(Path(folder, "python").glob("lib/python*/site-packages")), gone)
        taken = remove(root, gone)
        broken = [f"{path} imports what went" for path in taken if path.startswith(("tests/plugins/", "tests/science"))]
        ignore_missing(root / "pyproject.toml", gone)
        # The other cases run where nothing is deleted.
        environment = _environment() | {"CTXBENCH_TEST_GONE": " ".join(commands), "CTXBENCH_TEST_CASES": "drawn"}

        def run(what: str, *arguments: str) -> str:
            command = [python, *arguments]
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
            if done.returncode not in (0, NO_TESTS):
                broken.append(f"{what}: {_last(done.stdout + done.stderr)}")
            return done.stdout

        shown = run("help", "-m", "ctxbench", "--help")
        named = [command for command in commands if re.search(rf"^  {command}\s", shown, re.MULTILINE)]
        broken += [f"the help names {command}" for command in named]
        run("suites", "-c", SUITES)
        if not paths:
            run("ruff", "-m", "ruff", "check", "--quiet", ".")
            run("mypy", "-m", "mypy")
            run("import rules", "tests/import_rules.py")
            run("docs", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", f"{folder}/site")
        usual = ["-p", "no:cacheprovider", *["-p", f"no:{FIXTURE}"] * ("pytest" in gone)]
        # Sphinx has looked at the links of the docs that are left, without those to the pages that went.
        usual += ["--deselect", "tests/test_docs.py::test_links_lead_to_files_and_headings"]
        # The generated tables name what there is, until `make report` writes them anew.
        usual += ["--ignore", "tests/test_made_docs.py"]
        usual += paths or ["-n", "2", "--dist", "loadscope"]
        for marked in (QUICK, SLOWER):
            report = run("tests", "-m", "pytest", *usual, "-m", marked)
            if ended := re.findall(r"^\d+ .*(?:passed|failed|error).*$", report, re.MULTILINE):
                break
        else:
            broken.append("no test ran")
        broken += re.findall(r"^(?:FAILED|ERROR) .*$", report, re.MULTILINE)
    files, lines = size([name] if paths else gone)
    return Proof(name, sorted(left), files, lines, "".join(ended[-1:]), broken, time.monotonic() - started)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}


def _last(output: str) -> str:
    return " | ".join(output.strip().splitlines()[-3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", action="store_true", help="all but these, in place of these alone")
    parser.add_argument("names", nargs="*", metavar="PLUGIN", help=", ".join(deletable()))
    asked = parser.parse_args()
    proofs: Iterator[Proof] = map(without if asked.without else alone, asked.names or deletable())
    failed = False
    for proof in proofs if asked.names or asked.without else itertools.chain([core()], proofs):
        print(proof, flush=True)
        failed |= bool(proof.broken)
    sys.exit(failed)


if __name__ == "__main__":
    main()
