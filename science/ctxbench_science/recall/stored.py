"""Results of the stored runs of the suite `recall`: a module of the same code need not be trained again."""

import ast
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ctxbench.base import disk, git
from ctxbench.base.code import without_docstrings
from ctxbench.base.errors import UsageError
from ctxbench.results.csv_file import csv_rows, fingerprint
from ctxbench_science.recall import RECIPE

ROOT = Path(__file__).resolve().parents[3]
# Begin of the names of what modules share.
SHARED = "ctxbench.modules._"


@dataclass(frozen=True)
class StoredRun:
    """A run folder, with its `run.json` and the rows of its records."""

    folder: str
    meta: Mapping[str, Any]
    rows: Sequence[Mapping[str, str]]


@cache
def stored_runs() -> list[StoredRun]:
    """The runs that ended, whose records are as they were written; none where ctxbench is no clone with its results."""
    return [run for folder in sorted((ROOT / "results").glob("recall-*")) if (run := _read(folder))]


def _read(folder: Path) -> StoredRun | None:
    path = folder / "records.csv"
    try:
        meta = disk.read_json(folder / "run.json")
        # a run that goes on has no checksums yet
        if fingerprint(path) != meta.get("tables", {}).get("records.csv"):
            return None
        header, lines = csv_rows(path)
    except UsageError:
        return None
    return StoredRun(f"results/{folder.name}", meta, [dict(zip(header, line, strict=True)) for line in lines])


def stored_rows(reference: str, hparams: str, file: str) -> Iterator[tuple[StoredRun, Mapping[str, str]]]:
    """The rows that were trained of this class with these hyper-parameters in JSON, where no code has changed since.

    `file` is the module's. What trains it is the same where RECIPE is.
    """
    for run in stored_runs():
        for row in run.rows:
            # the first recipe had no number
            found = (row["reference"], row["hparams"], int(row.get("recall_recipe") or 1))
            known = found == (reference, hparams, RECIPE) and row["recall_curve"]
            was_read = '"recall_stored"' in (row.get("notes") or "")
            if known and not was_read and _is_same(run.meta["environment"]["commit"], file):
                yield run, row


@cache
def _is_same(commit: str, file: str) -> bool:
    """Return whether git knows that the file and what it imports of SHARED have the definitions that they had then.

    A shared file that is gone is imported by none that is as it was.
    """
    if not Path(file).resolve().is_relative_to(ROOT):
        return False
    try:
        then = git.blobs(ROOT, commit, *map(Path, _with_shared(file)))
        return all(
            _definitions(git.output(ROOT, "cat-file", "blob", name)) <= _definitions(disk.read_text(path))
            for path, name in then.items()
            if not git.is_blob(path, name)
        )
    except (OSError, UsageError, subprocess.CalledProcessError, SyntaxError):
        return False


def _with_shared(file: str | Path) -> list[str]:
    """A file, those of SHARED that it imports, and what those import of it."""
    nodes = ast.walk(ast.parse(disk.read_text(Path(file))))
    named = (each.module for each in nodes if isinstance(each, ast.ImportFrom) and each.module)
    shared = [ROOT / "modules" / f"_{each.removeprefix(SHARED)}.py" for each in named if each.startswith(SHARED)]
    return [str(file), *(path for each in shared for path in _with_shared(each))]


def _definitions(code: str) -> set[str]:
    """The statements of a file, without comments and docstrings."""
    return {ast.dump(each) for each in without_docstrings(code).body if not isinstance(each, ast.Pass)}
