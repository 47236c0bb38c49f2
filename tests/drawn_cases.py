"""Of tests with many cases: those of changed files, and a tenth of the others, drawn by the day.

A test that runs once for each block, plugin, suite or published table is a walk over these: the same ones are drawn for
all walks. Of other tests with MANY cases, and of those that have the mark `drawn`, a tenth is drawn for each, unless a
file that their own file or folder, or the mark, is named after has changed.
`make test` asks for it by CTXBENCH_TEST_CASES=drawn. CI asks for all, as does pytest itself.
"""

import os
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import pytest

from ctxbench import registry
from ctxbench.model.read_suite import available
from ctxbench.plugin import plugins

ROOT = Path(__file__).parents[1]
VARIABLE = "CTXBENCH_TEST_CASES"
PART = 10
# Of fewer cases each is tried.
MANY = 4
# A test with fewer blocks, plugins, suites or tables is about these.
MANY_NAMES = 10
# Files that a commit changes.
MOST = 100


def blocks() -> list[str]:
    """Keys of ctxbench's own blocks: tests register others."""
    return [each.key for each in registry.entries() if each.reference.startswith(f"{registry.BUILT_IN}.")]


def known() -> list[str]:
    """Names of all blocks, plugins and suites."""
    return sorted({*blocks(), *plugins(), *available()})


def kept(seed: str) -> set[str]:
    """Names of those that are tried today."""
    changed, names = _changed(), known()
    of_blocks = {key for key in blocks() if _sources(key) & changed}
    return of_blocks | ({*names} & changed) | {*drawn(names, seed)}


def drawn(names: Sequence[str], seed: str) -> list[str]:
    return random.Random(seed).sample(names, -(-len(names) // PART))


def _changed() -> set[str]:
    """Stems and folders of the files that the working tree or the last commit changed; none without its history.

    A last commit with more than MOST files is many in one, and says nothing about what is under way.
    """
    paths: list[PurePosixPath] = []
    for since in ("HEAD~1", "HEAD"):
        command = ["git", "diff", "--name-only", since]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        paths = [PurePosixPath(name) for name in done.stdout.splitlines()]
        if len(paths) <= MOST:
            break
    return {part for path in paths for part in (path.stem, *path.parts[:-1])}


def _sources(key: str) -> set[str]:
    """Stems of a block's file and of the files beside it that it names."""
    stem = registry.get(key).reference.partition(":")[0].rpartition(".")[2]
    return {stem, *re.findall(r"\b_[a-z_]+(?= import)", (ROOT / "modules" / f"{stem}.py").read_text("utf-8"))}


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests that are not for today."""
    if os.environ.get(VARIABLE) != "drawn":
        return []
    walks: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        walks[item.nodeid.partition("[")[0]].append(item)
    day = datetime.now(UTC).date().isoformat()
    names, today, changed = {*known()}, kept(day), _changed()
    gone = []
    for name, walk in walks.items():
        mark = walk[0].get_closest_marker("drawn")
        if not mark and len({text for item in walk for text in _texts(item) & names}) > MANY_NAMES:
            gone += [item for item in walk if (own := _texts(item) & names) and not own & today]
        elif (mark or len(walk) >= MANY) and not _about(walk[0]) & changed:
            cases = changed | {*drawn(sorted(map(_case, walk)), f"{day} {name}")}
            gone += [item for item in walk if not {_case(item), *_texts(item)} & cases]
    return gone


def _about(item: pytest.Item) -> set[str]:
    """Stems and folders of files with which all cases of a test are tried: words of its file's name, its folder."""
    marked = [name for mark in item.iter_markers("drawn") for name in mark.args]
    return {item.path.stem, item.path.parent.name, *item.path.stem.split("_"), *marked} - {"test", "tests"}


def _case(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[2].removesuffix("]")


def _texts(item: pytest.Item) -> set[str]:
    """The texts among the parameters of a test."""
    found = getattr(item, "callspec", None)
    return {each for each in found.params.values() if isinstance(each, str)} if found else set()
