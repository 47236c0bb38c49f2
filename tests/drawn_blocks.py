"""Of the tests that run once for each block: those of changed blocks, and of a fifth of the others, drawn by the day.

`make test` asks for it by CTXBENCH_TEST_BLOCKS=drawn. CI asks for all, as does pytest itself.
"""

import os
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctxbench import registry

ROOT = Path(__file__).parents[1]
VARIABLE = "CTXBENCH_TEST_BLOCKS"
PART = 5
# A test with fewer blocks is about these.
MANY = 10


def blocks() -> list[str]:
    """Keys of ctxbench's own blocks: tests register others."""
    return [each.key for each in registry.entries() if each.reference.startswith(f"{registry.BUILT_IN}.")]


def kept(seed: str) -> set[str]:
    """Keys of the blocks that are tried today."""
    changed, names = _changed(), blocks()
    return {key for key in names if _sources(key) & changed} | {*drawn(names, seed)}


def drawn(names: Sequence[str], seed: str) -> list[str]:
    return random.Random(seed).sample(names, len(names) // PART)


def _changed() -> set[str]:
    """Stems of the files in modules/ that the working tree or the last commit changed; none without its history."""
    command = ["git", "diff", "--name-only", "HEAD~1", "--", "modules"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {Path(name).stem for name in done.stdout.splitlines()}


def _sources(key: str) -> set[str]:
    """Stems of a block's file and of the files beside it that it names."""
    stem = registry.get(key).reference.partition(":")[0].rpartition(".")[2]
    return {stem, *re.findall(r"\b_[a-z_]+(?= import)", (ROOT / "modules" / f"{stem}.py").read_text("utf-8"))}


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests that are not for today."""
    if os.environ.get(VARIABLE) != "drawn":
        return []
    names = {*blocks()}
    tried: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        tried[_function(item)] |= _blocks(item) & names
    today = kept(datetime.now(UTC).date().isoformat())
    return [
        item
        for item in items
        if len(tried[_function(item)]) > MANY and (own := _blocks(item) & names) and not own & today
    ]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _blocks(item: pytest.Item) -> set[str]:
    """The texts among the parameters of a test."""
    found = getattr(item, "callspec", None)
    return {each for each in found.params.values() if isinstance(each, str)} if found else set()
