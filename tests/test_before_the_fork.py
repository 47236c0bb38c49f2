"""Before the fork, the measuring process runs no backward pass and asks no driver: else no child could train."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ctxbench.base.clocks import FORKS
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.messages import Failure, Values
from ctxbench.registry.reference import Reference
from ctxbench.worker import tasks
from ctxbench.worker.lines import decode
from ctxbench.worker.protocol import Reply

FIXTURES = Path(__file__).parent / "fixtures"
Measured = Callable[..., list[Reply]]


@pytest.fixture(scope="session")
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


@pytest.fixture
def measured(stand_in: Path) -> Measured:
    """Report of a child that was forked beside the stand-in accelerator."""

    def run(*before: str) -> list[Reply]:
        script = FIXTURES / "forks_beside_a_device.py"
        command = [sys.executable, str(script), str(stand_in), *before]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return [decode(line) for line in done.stdout.splitlines()]

    return run


@pytest.mark.processes
def test_a_child_trains_beside_an_accelerator(measured: Measured) -> None:
    messages = measured()
    assert not [message for message in messages if isinstance(message, Failure)]
    values: dict[str, Any] = {}
    for message in messages:
        if isinstance(message, Values):
            values |= message.values
    assert values["latency_train_ms"] > 0
    assert values["memory_train_predicted_bytes"] > 0


@pytest.mark.processes
def test_a_backward_pass_before_the_fork_would_fail_the_child(measured: Measured) -> None:
    (failure,) = (message for message in measured("backward") if isinstance(message, Failure))
    assert "Unable to handle autograd's threading in combination with fork" in failure.message


def test_preload_runs_no_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(torch.autograd.Variable, "_execution_engine", None)
        with pytest.raises(AttributeError, match="run_backward"):
            torch.ones(1, requires_grad=True).backward()
        tasks.preload()


DRIVER_CALLS = """
import sys, torch
asked = []
for module, name in [
    (torch.cuda, "is_available"), (torch.cuda, "device_count"), (torch.cuda, "_lazy_init"), (torch.cuda, "init"),
    (torch.accelerator, "is_available"), (torch.accelerator, "device_count"),
]:
    setattr(module, name, lambda *arguments, name=f"{module.__name__}.{name}": asked.append(name))
from ctxbench.worker import tasks
tasks.preload()
assert not torch.cuda.is_initialized()
sys.exit(", ".join(asked) or 0)
"""


@pytest.mark.processes
def test_preload_asks_no_driver() -> None:
    done = subprocess.run([sys.executable, "-c", DRIVER_CALLS], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


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
    with IsolatedLoader() as loader:
        for name in ("one", "two"):
            loader.entry(Reference("mine.py", name))
    assert len({*log.read_text().splitlines()}) == 3
