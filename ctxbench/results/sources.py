"""A row's code: the files that its numbers were measured by, and which of them are others today.

It is the package ctxbench, the files of the row's module and network, and each file of a person's own that was imported
for it. Who waits imports none of them: the process that measures tells (`own_files`), and `run.json` keeps them.
"""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxbench.base import disk, git
from ctxbench.base.call_sites import is_harness, is_library
from ctxbench.base.errors import UsageError
from ctxbench.model.case import Case
from ctxbench.model.read_suite import code_beside
from ctxbench.plugin import elsewhere
from ctxbench.registry import trust
from ctxbench.registry.objects import SESSION
from ctxbench.registry.reference import Reference

PACKAGE = "ctxbench"
# Begins of what a module read and is no file: the name of a variable, and what has no content to compare.
VARIABLE, UNKNOWN = "the variable ", "the answer of "
# Variables that differ between two terminals of one person, or two tests: no module's cost hangs on them.
OF_A_TERMINAL = re.compile(
    f"{SESSION}|_|PWD|OLDPWD|SHLVL|COLUMNS|LINES|(COLOR)?TERM.*|DISPLAY|WINDOWID|TMUX.*|STY|(SSH|DBUS|XDG_SESSION)_.*"
    "|PYTEST_CURRENT_TEST|OPENBLAS_NUM_THREADS"
)


def hash_of(name: str) -> str:
    """The hash of a file, or of the value of a variable; empty if there is none, or nothing to compare."""
    if name.startswith(VARIABLE):
        value = os.environ.get(name.removeprefix(VARIABLE))
        return "" if value is None else hashlib.sha256(os.fsencode(value)).hexdigest()
    return "" if name.startswith(UNKNOWN) else disk.sha256(Path(name))


def own_files(names: Iterable[str]) -> dict[str, str]:
    """Files of imported modules that are a person's own, with their SHA-256: none of ctxbench or a library."""
    return {str(file): disk.sha256(file) for name in names if (file := _own_file(name))}


def _own_file(name: str) -> Path | None:
    """The file of an imported module, unless it, or the package that it says it is in, is no person's own."""
    top = name.partition(".")[0]
    if top in (PACKAGE, "__main__"):
        return None
    path = _file_of(name)
    if is_library(path) or is_harness(path) or is_library(_file_of(top)):
        return None
    if top not in sys.modules and not path.endswith(".py"):
        return None  # a kernel that torch.compile has built for this process
    return Path(path).resolve() if Path(path).is_file() else None


def _file_of(name: str) -> str:
    # Not by getattr, which has lazy modules import what they stand for.
    file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else ""


def code_digest() -> str:
    """SHA-256 over ctxbench, its modules, networks and plugins: their source and the data beside it."""
    specs = [importlib.util.find_spec(name) for name in (PACKAGE, f"{PACKAGE}.modules", f"{PACKAGE}.networks")]
    folders = [folder for spec in specs for folder in (spec and spec.submodule_search_locations) or ()]
    folders += map(str, elsewhere().values())
    files = {file for folder in folders for file in Path(folder).rglob("[!.]*") if file.is_file()}
    return digest(sorted(file for file in files if "__pycache__" not in file.parts))


def digest(files: Sequence[Path]) -> str:
    """SHA-256 over the names and contents of files."""
    found = hashlib.sha256()
    for file in files:
        found.update(f"{disk.sha256(file)} {file.name}\n".encode())
    return found.hexdigest()


def relative(path: Path) -> str:
    """A path from the working folder if it lies inside, so that another copy of that folder has it, too."""
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else str(path)


def relative_reference(reference: str) -> str:
    """A reference to a file from the working folder, so that the same module is found in another copy of it."""
    named = Reference.parse(reference)
    return str(named.at(relative(Path(named.source)))) if named.is_file else reference


def row_name(module: str, network: str) -> str:
    """Name in `imports` of `run.json` for the code of a module, alone or in a network."""
    return f"{module} in {relative_reference(network)}" if network else module


def source_of(file: Path) -> dict[str, Any]:
    """Location of a source file (from the working folder, if inside it), its hash, and the commit that it is of."""
    file = disk.whole(file)
    digest_of = hashlib.sha256(disk.read_bytes(file)).hexdigest()
    return {"file": relative(file), "sha256": digest_of, "commit": commit_of(file, file)}


def sources_of(cases: Iterable[Case]) -> dict[str, dict[str, Any]]:
    """For `run.json`: ctxbench, and the source file of each module and network by its name."""
    package = {"file": relative(Path(__file__).resolve().parents[1]), "sha256": code_digest()}
    return {PACKAGE: package, **{name: source_of(Path(file)) for name, file in _files(cases).items()}}


def changed_files(meta: Mapping[str, Any], cases: Sequence[Case]) -> list[str]:
    """Changed files of the code of these cases since a run; files that `run.json` lacks count as unchanged.

    ctxbench itself is its folder.
    """
    then, imports = meta.get("sources") or {}, meta.get("imports") or {}
    now = {name: Path(file).resolve() for name, file in _files(cases).items() if name in then}
    changed = [relative(file) for name, file in now.items() if disk.sha256(file) != then[name]["sha256"]]
    for row in dict.fromkeys(row_name(case.module, case.network) for case in cases):
        found = {file: hash_of(file) for file in imports.get(row, {})}
        changed += [f if found[f] else f"{f} (not found)" for f in found if found[f] != imports[row][f]]
    if cases and PACKAGE in then and code_digest() != then[PACKAGE]["sha256"]:
        changed.append(then[PACKAGE]["file"])
    return list(dict.fromkeys(changed))


def check_own_code(folder: Path, meta: Mapping[str, Any], names: Iterable[str], run_its_code: bool) -> None:
    """UsageError if these references of a run folder name code that may not run because a file says it.

    It may run with `run_its_code`; a file only if it is what the run was measured by, as far as `run.json` knows it.
    """
    said = [Reference.read(name, folder / "run.json") for name in dict.fromkeys(names)]
    refused = list(dict.fromkeys(filter(None, (trust.refused(each, folder) for each in said))))
    if refused and not run_its_code:
        files = [each.removeprefix(trust.FOREIGN) for each in refused if each.startswith(trust.FOREIGN)]
        others = [each for each in refused if not each.startswith(trust.FOREIGN)]
        what = " and ".join([*[f"{trust.FOREIGN}{', '.join(files)}"] * bool(files), *others])
        raise UsageError(f"{folder} names {what}; read it, and add --run-its-code to run it")
    known = {str(disk.whole(Path(each["file"]))): each["sha256"] for each in (meta.get("sources") or {}).values()}
    for own in (meta.get("imports") or {}).values():
        known |= {str(disk.whole(Path(file))): digest_of for file, digest_of in own.items()}
    foreign = {file for each in said if trust.refused(each, folder) for file in trust.code_of(each)}
    for file in foreign:
        if known.get(str(file), now := disk.sha256(file)) != now:
            raise UsageError(
                f"{file} is not what {folder} was measured by; read it, and name it with --module of check or run"
            )


def named_code(meta: Mapping[str, Any]) -> list[str]:
    """The references in a run's definition, and the Python file beside its suite."""
    suite = Path((meta.get("suite_file") or {}).get("file") or "suite.toml")
    return [*_texts(meta.get("definition") or {}), f"{code_beside(suite)}:"]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _files(cases: Iterable[Case]) -> dict[str, str]:
    one_of_each = {(case.module, case.network): case for case in cases}.values()
    return {name: file for case in one_of_each for name, file in case.sources.items()}


def commit_of(file: Path, changed: Path) -> str | None:
    """The commit of a tracked file, with `+changes` if tracked files at or below `changed` differ; None without one."""
    try:
        git.output(file.parent, "ls-files", "--error-unmatch", str(file))
        commit = git.output(file.parent, "rev-parse", "HEAD")
        then = git.blobs(file.parent, commit, changed)
    except (OSError, subprocess.CalledProcessError):
        return None
    same = file.resolve() in then and all(git.is_blob(each, name) for each, name in then.items())
    return commit if same else f"{commit}+changes"
