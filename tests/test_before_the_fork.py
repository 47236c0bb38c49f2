"""Before the fork, the measuring process runs no backward pass and asks no driver: else no child could train."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forked import in_fork

from ctxbench.base.clocks import FORKS
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.messages import Failure, Values
from ctxbench.registry.reference import Reference
from ctxbench.worker import tasks
from ctxbench.worker.lines import decode
from ctxbench.worker.protocol import Ask

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that registers a stand-in accelerator."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to build a stand-in accelerator with: apt-get install g++")
    from torch.utils.cpp_extension import include_paths, library_paths

    library = tmp_path_factory.mktemp("stand_in") / "one_device.so"
    folders = [f"-I{path}" for path in include_paths()] + [f"-L{path}" for path in library_paths()]
    options = ["-std=c++20", "-shared", "-fPIC", *folders]
    source = FIXTURES / "one_device.cpp"
    subprocess.run([compiler, *options, str(source), "-o", str(library), "-lc10"], check=True)
    return library


@pytest.mark.processes
def test_a_child_trains_beside_an_accelerator_unless_a_backward_pass_ran_before_the_fork(stand_in: Path) -> None:
    command = [sys.executable, str(FIXTURES / "forks_beside_a_device.py"), str(stand_in)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    usual, after_backward = ([decode(line) for line in part.splitlines()] for part in done.stdout.split(b"\n\n"))
    assert not [message for message in usual if isinstance(message, Failure)]
    values: dict[str, Any] = {}
    for message in usual:
        if isinstance(message, Values):
            values |= message.values
    assert values["latency_train_ms"] > 0
    assert values["memory_train_predicted_bytes"] > 0
    (failure,) = (message for message in after_backward if isinstance(message, Failure))
    assert "Unable to handle autograd's threading in combination with fork" in failure.message


def test_preload_runs_no_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(torch.autograd.Variable, "_execution_engine", None)
        with pytest.raises(AttributeError, match="run_backward"):
            torch.ones(1, requires_grad=True).backward()
        tasks.preload()


def asked_of_the_driver() -> list[str]:
    import fork_preload

    return fork_preload.asked


@pytest.mark.processes
def test_preload_asks_no_driver() -> None:
    assert in_fork(asked_of_the_driver) == []


# It writes down the process that imports it.
NETWORKS = """
import os
try:
    import neighbour
except ImportError:
    pass
with open({log!r}, "a") as file:
    print(__name__, os.getpid(), file=file)
def one(): ...
def two(): ...
"""


@pytest.mark.processes
@pytest.mark.skipif(not FORKS, reason="each task has an interpreter of its own")
def test_a_library_of_networks_is_imported_once_and_a_persons_own_file_by_each_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, library, own = tmp_path / "log", tmp_path / "site-packages" / "torchvision", tmp_path / "own"
    library.mkdir(parents=True)
    own.mkdir()
    (library / "__init__.py").write_text("from . import models\n")
    for path in (library / "models.py", own / "mine.py"):
        path.write_text(NETWORKS.format(log=str(log)))
    (own / "neighbour.py").write_text("raise SystemExit('a file of a person ran')\n")
    monkeypatch.setenv("PYTHONPATH", str(library.parent))
    monkeypatch.chdir(own)
    with IsolatedLoader() as loader:
        for name in ("one", "two"):
            assert loader.entry(Reference("torchvision.models", name)).reference == f"torchvision.models:{name}"
        (imported,) = log.read_text().splitlines()
        assert imported.startswith("torchvision.models ")
        (own / "neighbour.py").unlink()
        for name in ("one", "two"):
            loader.entry(Reference("mine.py", name))
    assert len({*log.read_text().splitlines()}) == 3


@pytest.mark.parametrize(
    ("reference", "library"),
    [
        ("resnet50_d8", "timm"),
        ("ctxbench.networks.mmsegmentation:r50_19", "timm"),
        ("timm.models:convnext_tiny", "timm"),
        ("torchvision.models:swin_t", "torchvision"),
        ("ctxbench.modules.se:SqueezeExcitation", ""),
        ("mine.py:net", ""),
    ],
)
def test_the_library_of_a_network_is_that_of_its_reference(
    monkeypatch: pytest.MonkeyPatch, reference: str, library: str
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(tasks, "importlib", SimpleNamespace(import_module=imported.append))
    monkeypatch.setattr(tasks, "_before_the_fork", set())
    tasks.prepare(Ask("call", [], [reference]))
    assert imported == [library] * bool(library)
