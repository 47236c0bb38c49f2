"""One side of a pair: its child times rows on command, slows them as told, and takes modules from its tree."""

import math
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from test_gate_pairs import READY

from ctxbench.base import clocks as this_machine
from ctxbench.base.mode import Mode
from ctxbench.engine.client import ForkServer
from ctxbench.model.case import Case, Measure
from ctxbench.model.grid import Suite
from ctxbench.model.suite_file import SuiteFile
from ctxbench.plugins.check.child import pair as pair
from ctxbench.plugins.check.exact import count_exact
from ctxbench.plugins.check.wire import BLOCK, NEXT, PairRow
from ctxbench.plugins.trees.tree_cases import list_cases
from ctxbench.plugins.trees.trees import Tree
from ctxbench.registry.load import import_source
from ctxbench.worker.protocol import Answer
from ctxbench.worker.tree import is_ctxbench, own_file

MODULES = """
import time
import weakref
import torch
from torch import nn

alive = weakref.WeakSet()
others = []  # at the making of each module, how many were alive


class Good(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        others.append(len(alive))
        alive.add(self)

    def forward(self, x):
        time.sleep(0.01)
        return x * self.scale


class Raises(Good):
    def forward(self, x):
        raise ValueError("the user's own words")


class NotANumber(Good):
    def forward(self, x):
        return x * self.scale / 0 * 0


class Wrong(Good):
    def forward(self, x):
        return x[:, :, :1]


class Hungry(Good):
    def forward(self, x):
        return x + torch.empty(2**50)


class LosesTheGpu(Good):
    def forward(self, x):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Tires(Good):
    passes = 0

    def forward(self, x):
        self.passes += 1
        if self.passes > 3:
            raise RuntimeError("tired")
        return super().forward(x)
"""


@pytest.fixture
def module_file(tmp_path: Path) -> Path:
    path = tmp_path / "blocks.py"
    path.write_text(MODULES)
    return path


@pytest.fixture
def machine_time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A machine on which nothing takes time but sleeping, and reading the clock a microsecond.

    A thread is on a core for a quarter of the time; how often it has waited is in the list.
    """
    now, waits = [100.0], [0.0]

    def advance(seconds: float) -> None:
        now[0] += seconds

    def read() -> float:
        advance(1e-6)
        return now[0]

    monkeypatch.setattr(time, "sleep", advance)
    monkeypatch.setattr(time, "perf_counter", read)
    monkeypatch.setattr(this_machine, "here", this_machine.Machine())
    monkeypatch.setattr(this_machine, "monotonic", lambda: now[0])
    monkeypatch.setattr(this_machine, "perf_counter_ns", lambda: round(now[0] * 1e9))
    monkeypatch.setattr(this_machine, "thread_time", lambda: (now[0] - 100.0) / 4)
    monkeypatch.setattr(this_machine, "_waits", lambda: waits[0])
    return waits


def talk(rows: list[PairRow], commands: bytes) -> list[Answer]:
    """Answers of a side: ready, then one to each command."""
    said: list[Answer] = []
    script = iter(commands)

    def emit(answer: Answer) -> bytes:
        said.append(answer)
        return bytes([next(script)]) if len(said) <= len(commands) else b""

    pair.take_side(Measure(warmup_s=0.0), rows, emit)
    return said


def row(path: Path, name: str, mode: Mode = "infer", inject: float = 0.0) -> PairRow:
    return PairRow(Case(name, f"{path}:{name}", {}, (1, 4, 3, 2)), mode, inject)


@pytest.mark.usefixtures("machine_time")
def test_a_block_times_the_row_in_milliseconds_by_both_clocks(module_file: Path) -> None:
    rows = [row(module_file, "Good"), row(module_file, "Good", "train")]
    said = talk(rows, NEXT + BLOCK + BLOCK + NEXT + BLOCK)
    assert said[:2] == [READY, READY]
    for reply in (said[2], said[3], said[5]):
        assert reply.wall == pytest.approx([10.0] * 5)
        assert reply.cpu == pytest.approx([2.5] * 5)
    assert said[4] == READY


@pytest.mark.parametrize(("a_pass", "threads", "times"), [
    (0.0, 1, 5), (0.09, 1, 5), (0.2, 1, 0), (1.0, 1, 0), (math.nan, 1, 0), (0.0, 2, 0),
])  # fmt: skip
def test_the_processor_s_time_is_told_where_a_pass_neither_waits_nor_has_threads(
    module_file: Path,
    machine_time: list[float],
    monkeypatch: pytest.MonkeyPatch,
    a_pass: float,
    threads: int,
    times: int,
) -> None:
    sleep = time.sleep

    def waiting(seconds: float) -> None:
        machine_time[0] += a_pass
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", waiting)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    said = talk([row(module_file, "Good")], NEXT + BLOCK)
    assert said[2].wall == pytest.approx([10.0] * 5)
    assert len(said[2].cpu) == times


@pytest.mark.usefixtures("machine_time")
def test_an_injected_share_is_in_the_time_of_its_row_alone(module_file: Path) -> None:
    rows = [row(module_file, "Good", inject=0.3), row(module_file, "Good", inject=0.0)]
    said = talk(rows, NEXT + BLOCK + NEXT + BLOCK)
    assert said[2].wall == pytest.approx([13.0])  # thirteen passes, more than fit into a block's time, counted as ten
    assert said[4].wall == pytest.approx([10.0] * 5)


@pytest.mark.usefixtures("machine_time")
def test_what_fails_is_a_reply_and_the_next_row_goes_on(module_file: Path) -> None:
    names = ["Raises", "NotANumber", "Wrong", "Hungry", "Missing", "Good"]
    said = talk([row(module_file, name) for name in names], NEXT * 6 + BLOCK)
    failures = [reply.failure for reply in said[1:]]
    expected = [
        ("error", "ValueError: the user's own words (blocks.py, line "),
        ("nan", "the output of the infer pass holds NaN or infinity"),
        ("error", "ValueError: Wrong returns shape [1, 4, 1, 2] for [1, 4, 3, 2]"),
        ("oom", "out of memory: "),
        ("error", "UnknownClass: unknown class in"),
    ]
    for failure, (status, sentence) in zip(failures[:5], expected, strict=True):
        assert failure is not None
        assert failure.status == status
        assert failure.message.startswith(sentence)
    assert failures[5] is None
    assert said[7].wall == pytest.approx([10.0] * 5)


@pytest.mark.usefixtures("machine_time")
def test_a_failure_in_a_block_and_a_command_too_many(module_file: Path) -> None:
    said = talk([row(module_file, "Tires"), row(module_file, "Good")], NEXT + BLOCK + NEXT + BLOCK + NEXT)
    assert said[2].failure is not None
    assert said[2].failure.message.startswith("RuntimeError: tired (blocks.py, line ")
    assert said[4].wall == pytest.approx([10.0] * 5)
    assert said[5].failure is not None


@pytest.mark.usefixtures("machine_time")
def test_a_side_ends_after_an_error_that_leaves_the_gpu_unusable(module_file: Path) -> None:
    said = talk([row(module_file, "LosesTheGpu"), row(module_file, "Good")], NEXT + NEXT + BLOCK)
    assert said[0] == READY
    (failure,) = (reply.failure for reply in said[1:])
    assert failure is not None
    assert failure.status == "crashed"
    assert failure.message.startswith("RuntimeError: CUDA error: an illegal memory access was encountered (blocks.py")


@pytest.mark.usefixtures("machine_time")
def test_the_gpu_cache_is_emptied_after_a_row_is_freed(module_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache that notes how many modules are alive when it is emptied."""
    alive: list[int] = []

    def empty_cache() -> None:
        alive.append(len(import_source(str(module_file)).alive))

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    rows = [row(module_file, "Good"), row(module_file, "Good", "train")]
    talk(rows, NEXT + BLOCK + NEXT)
    assert alive == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    talk(rows, NEXT + BLOCK + NEXT)
    assert alive == [0, 0]


@pytest.mark.usefixtures("machine_time")
def test_a_row_is_freed_before_the_next_is_made(module_file: Path) -> None:
    names = ["Good", "Raises", "NotANumber", "Tires", "Good"]
    talk([row(module_file, name) for name in names], NEXT + BLOCK + NEXT + NEXT + NEXT + BLOCK + NEXT + BLOCK)
    assert import_source(str(module_file)).others == [0] * len(names)


SLOWED = {
    (7, 0.0): (7, 7),
    (1, 0.1): (10, 11),
    (10, 0.1): (10, 11),
    (11, 0.1): (20, 22),
    (1, 0.3): (10, 13),
    (6, 0.2): (10, 12),
    (1, 0.07): (100, 107),
    (3, 1 / 3): (3, 4),
    (1, 1.5): (2, 5),
}


@pytest.mark.parametrize(("asked", "expected"), SLOWED.items())
def test_a_slowed_sample_runs_whole_passes_more_than_it_counts(
    asked: tuple[int, float], expected: tuple[int, int]
) -> None:
    assert pair.slowed(*asked) == expected


def test_every_whole_percent_is_injected_exactly() -> None:
    for percent in range(1, 100):
        counted, run = pair.slowed(3, percent / 100)
        assert (run - counted) * 100 == percent * counted


BLOCK_FILE = """
from torch import nn
import {helper}


class {name}(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv1d(1, {helper}.WIDTH, 1, bias=False)

    def forward(self, x):
        return x * self.layer.weight.sum()
"""


def write_tree(root: Path, width: int) -> None:
    """Three modules, in a file, in a package and in a package under src; each has `width` parameters."""
    files = {
        "flat_block.py": BLOCK_FILE.format(name="FlatFile", helper="flat_helper"),
        "flat_helper.py": f"WIDTH = {width}\n",
        "flat_package/__init__.py": "",
        "flat_package/block.py": BLOCK_FILE.format(name="FlatPackage", helper="flat_package.helper"),
        "flat_package/helper.py": f"WIDTH = {width}\n",
        "src/src_package/__init__.py": "",
        "src/src_package/block.py": BLOCK_FILE.format(name="SrcPackage", helper="src_package.helper"),
        "src/src_package/helper.py": f"WIDTH = {width}\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def params(root: Path, modules: list[str]) -> dict[str, int | None]:
    """Parameters by module, of what a fork server in this tree takes for them."""
    tree = Tree(root, "the tree")
    definition = {"title": "t", "modules": modules, "metrics": ["params"], "axes": {"shape": [1, 8, 4, 4]}}
    suite = Suite("t", Path("t.toml"), SuiteFile.model_validate(definition))
    with ForkServer(root) as server:
        found = list_cases(server, suite, "cpu", tree)
        count_exact(server, suite, found, found.cases)
    assert (found.missing, found.failures, found.own()) == ({}, {}, list(found.cases))
    return {found.cases[name].module: exact["params"] for name, exact in found.exact.items()}


def files_of(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


@pytest.mark.processes
def test_a_server_takes_modules_from_its_tree_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, installed, here = (tmp_path / name for name in ("tree", "installed", "here"))
    for root, width in ((tree, 3), (installed, 5), (here, 7)):
        write_tree(root, width)
    # What looks like the harness in a user's tree is not the harness.
    (tree / "ctxbench").mkdir()
    (tree / "ctxbench" / "__init__.py").write_text("raise RuntimeError('the tree has its own harness')\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", str(installed), str(installed / "src")]))
    before = files_of(tmp_path)
    found = params(tree, ["flat_block.py:FlatFile", "flat_package.block:FlatPackage", "src_package.block:SrcPackage"])
    assert found == {"FlatFile": 3, "FlatPackage": 3, "SrcPackage": 3}
    assert files_of(tmp_path) == before


@pytest.mark.processes
def test_a_source_tree_of_ctxbench_brings_its_modules_and_not_its_harness(tmp_path: Path) -> None:
    repository = Path(__file__).parents[3]
    shutil.copytree(repository / "modules", tmp_path / "modules", ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "modules" / "sa.py"
    text = changed.read_text()
    line = "        self.output = nn.Conv2d(width, channels, 1)\n"
    assert text.count(line) == 1
    changed.write_text(text.replace(line, line + "        self.extra = nn.Linear(1, 10, bias=False)\n"))
    (tmp_path / "ctxbench").mkdir()
    (tmp_path / "ctxbench" / "__init__.py").write_text("raise RuntimeError('the harness of another commit')\n")
    assert is_ctxbench(repository)
    before = files_of(tmp_path)
    # 4 C^2 + 4 C parameters at C = 8, and ten more; an unchanged module with 2 C^2 + 3 C.
    assert params(tmp_path, ["sa", "ham_nmf"]) == {"sa": 288 + 10, "ham_nmf": 152}
    assert files_of(tmp_path) == before


def test_a_tree_owns_its_files_but_not_those_of_an_environment_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    assert own_file(str(tmp_path / "block.py"), tmp_path)
    assert not own_file(str(tmp_path / ".venv" / "lib" / "block.py"), tmp_path)
    assert not own_file(str(tmp_path.parent / "block.py"), tmp_path)
    # A repository below the interpreter's prefix, such as /usr/src/app for a Python in /usr.
    monkeypatch.setattr("sys.prefix", str(tmp_path.parent))
    assert own_file(str(tmp_path / "block.py"), tmp_path)
