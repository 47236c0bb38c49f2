"""A row's code: which files it is, and that no run goes on, and none is reused, with another one."""

import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from conftest import TINY
from fakes import FakeExecutor, counted, timed

import ctxbench
from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.engine.one_process import Plan
from ctxbench.engine.progress import Quiet
from ctxbench.engine.rounds import execute
from ctxbench.engine.run import resume
from ctxbench.model import read_suite as suites
from ctxbench.model.case import Case, Measure
from ctxbench.plugin import plugins
from ctxbench.results import sources
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.sources import code_digest, own_files
from ctxbench.worker.protocol import Imported, MeasureCase, Reply

ROOT = Path(__file__).resolve().parents[1]
OWN = {
    "mine.py": """
from torch import nn
from beside_mine import PARTS

class Mine(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(PARTS))
    def forward(self, x):
        import late
        for part in self.parts:
            x = x + part(x.mean((2, 3), keepdim=True))
        return x
""",
    "beside_mine.py": "PARTS = 1\n",
    "late.py": "",
    "net.py": """
from torch import nn
from beside_net import LAYERS

def net(make_module):
    return nn.Sequential(*(make_module(8) for _ in range(LAYERS)))
""",
    "beside_net.py": "LAYERS = 2\n",
}


@pytest.fixture(scope="module")
def measured(module_server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of a module and of one of ctxbench's, alone and in a network, with counts and no times."""
    folder = tmp_path_factory.mktemp("measured")
    for name, text in OWN.items():
        (folder / name).write_text(text)
    axes = "device = 'titan-xp'\nnetwork = ['', 'net.py:net']"
    named = {"modules": ["mine.py:Mine", "sa"], "metrics": ["params", "macs"], "axes": axes, "measure": ""}
    (folder / "tiny.toml").write_text(TINY.format(processes=1, timeout=60, **named).replace("'", '"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ctxbench.run("tiny.toml", out="run")
    return folder


@pytest.fixture
def run(measured: Path, shared_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """The run in a copy of its folder, which is the working one."""
    monkeypatch.chdir(shutil.copytree(measured, tmp_path / "copy"))
    return RunFolder.open(Path("run"))


def change(name: str) -> None:
    Path(name).write_text(Path(name).read_text() + "# another\n")


@pytest.mark.processes
def test_a_run_tells_the_files_of_each_row(run: RunFolder) -> None:
    assert run.frame()["status"].tolist() == ["ok"] * 5
    own, net = ("mine.py", "beside_mine.py", "late.py"), ("net.py", "beside_net.py")
    expected = {"Mine": own, "Mine in net.py:net": own + net, "sa in net.py:net": net, "identity in net.py:net": net}
    meta = json.loads((run.path / "run.json").read_text())
    assert meta["imports"] == {
        row: {name: disk.sha256(Path(name)) for name in names} for row, names in expected.items()
    }
    assert meta["sources"]["ctxbench"] == {"file": str(ROOT / "ctxbench"), "sha256": code_digest()}


@pytest.mark.processes
def test_a_run_is_not_resumed_with_other_code(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        with pytest.raises(UsageError, match="run cannot be resumed: ") as error:
            resume(run.path)
        return str(error.value).partition("resumed: ")[2]

    end = "changed since it began, and one table would hold the numbers of both; start a new run"
    for name in (*OWN, "tiny.toml"):
        before = Path(name).read_text()
        change(name)
        assert refused() == f"{name} {end}"
        Path(name).write_text(before)
    Path("late.py").unlink()
    assert refused() == f"late.py (not found) {end}"
    Path("late.py").write_text(OWN["late.py"])
    with monkeypatch.context() as patch:
        patch.setattr(sources, "code_digest", lambda: "other")
        assert refused() == f"{ROOT / 'ctxbench'} {end}"
    assert resume(run.path).failed == 0


@pytest.mark.processes
def test_what_an_older_run_does_not_tell_is_taken_for_the_same(run: RunFolder) -> None:
    del run.meta["imports"], run.meta["sources"]["ctxbench"]
    run.save_meta()
    change("beside_mine.py")
    assert resume(run.path).failed == 0
    assert "ctxbench" not in RunFolder.open(run.path).meta["sources"]
    change("mine.py")
    with pytest.raises(UsageError, match=r"cannot be resumed: mine\.py changed since it began"):
        resume(run.path)


@pytest.mark.processes
def test_failed_rows_are_measured_again_by_what_has_changed(run: RunFolder) -> None:
    Path("late.py").write_text("import os; os._exit(3)")
    failed = ctxbench.run("tiny.toml", modules=["mine.py:Mine"], out="failed").folder
    assert failed.frame()["status"].tolist() == ["ok", "crashed", "crashed"]
    own, net = {"mine.py", "beside_mine.py"}, {"net.py", "beside_net.py"}
    assert [{*files} for files in failed.meta["imports"].values()] == [net, own, own]  # it ends before its network
    Path("late.py").write_text("")
    Path("beside_mine.py").write_text("PARTS = 3")
    again = resume("failed", retry_failed=True)
    assert again.frame()["params"].tolist() == [0, 3 * 72, 2 * 3 * 72]
    assert again.meta["imports"]["Mine"] == {name: disk.sha256(Path(name)) for name in (*own, "late.py")}


@pytest.mark.processes
@pytest.mark.plugin("compare")
def test_rows_of_other_code_are_not_reused(run: RunFolder) -> None:
    from ctxbench.plugins.compare.comparison import reusable

    suite, environment = suites.load("tiny.toml"), run.meta["environment"]
    for candidates, held in (((), 5), (("Mine",), 3)):
        assert len(reusable(run.path, suite, candidates, environment)) == held
    change("beside_mine.py")
    with pytest.raises(UsageError, match=r"run cannot be reused \(beside_mine\.py has changed\): its rows and new"):
        reusable(run.path, suite, (), environment)
    found = reusable(run.path, suite, ("Mine",), environment)  # the candidate is measured anew
    files = [{*outcome.imports} for each in found.values() for outcome in each.values()]
    net = {"net.py", "beside_net.py"}
    assert files == [net, set(), net]
    change("beside_net.py")
    with pytest.raises(UsageError, match=r"run cannot be reused \(beside_net\.py has changed\)"):
        reusable(run.path, suite, ("Mine",), environment)


def test_a_process_that_measured_another_file_than_the_ones_before_has_no_numbers(tmp_path: Path) -> None:
    cases = [Case(name, f"{name}.py:X", {}, (1, 8, 4, 4)) for name in ("first", "second")]

    def measure(task: MeasureCase) -> list[Reply]:
        number = script.launched if "latency" in task.metrics else 0
        is_other = task.case.module == "second" and number == 2
        return [Imported({"/beside.py": "new" if is_other else "old"}), *(timed(1.0) if number else counted())]

    script = FakeExecutor(measure)
    folder = RunFolder.create(tmp_path / "run", {})
    plan = Plan(Measure(processes=4), ["params", "latency"])
    first, second = execute(cases, plan, script, script.launch, folder, Quiet())
    assert (first.status, first.processes) == ("ok", 4)
    assert second.status == "error"
    assert second.message == "in process 2 of 4: /beside.py changed since the run began; start a new run"
    processes = folder.finished()[second.case]
    assert {number: bool(each.values) for number, each in processes.items()} == {0: True, 1: True, 2: False}
    assert folder.meta["imports"] == {"first": {"/beside.py": "old"}, "second": {"/beside.py": "old"}}


class Lazy(ModuleType):
    """As six.moves: asked for what it does not have, it imports."""

    def __getattr__(self, name: str) -> object:
        raise ImportError(name)


def imported(name: str, file: object, kind: type[ModuleType] = ModuleType) -> ModuleType:
    """A module as if it had been imported from a file, which is written."""
    if isinstance(file, Path):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    module = kind(name)
    module.__dict__["__file__"] = str(file) if isinstance(file, Path) else file
    return module


def test_own_files_are_those_of_no_library_and_not_of_ctxbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib" / "site-packages"
    own = {
        "mine": imported("mine", tmp_path / "mine.py"),
        "pack": imported("pack", tmp_path / "pack" / "__init__.py"),
        "pack.part": imported("pack.part", tmp_path / "pack" / "part.py"),
        "space.part": imported("space.part", tmp_path / "space" / "part.py"),
        "fast": imported("fast", tmp_path / "fast.so"),
        "ctxbench_file_x_py": imported("ctxbench_file_x_py", tmp_path / "x.py"),
    }
    others = {
        "installed": imported("installed", library / "installed.py"),
        "space.installed": imported("space.installed", library / "space" / "installed.py"),
        "installed.made": imported("installed.made", tmp_path / "cache" / "made.py"),
        "system": imported("system", tmp_path / "dist-packages" / "system.py"),
        "hash0.kernel": imported("hash0.kernel", tmp_path / "cache" / "kernel.so"),
        "ctxbench.modules.new": imported("ctxbench.modules.new", tmp_path / "modules" / "new.py"),
        "__main__": imported("__main__", tmp_path / "script.py"),
        "gone": imported("gone", str(tmp_path / "gone.py")),
        "built_in": imported("built_in", None),
        "lazy": imported("lazy", None, Lazy),
        "nothing": None,
        "no_module": SimpleNamespace(),
    }
    del others["lazy"].__dict__["__file__"]
    for name, module in {**own, **others}.items():
        monkeypatch.setitem(sys.modules, name, module)
    found = own_files([*own, *others, "json", "pytest", "never_imported"])
    assert found == {module.__file__: disk.sha256(Path(str(module.__file__))) for module in own.values()}


def test_the_digest_is_of_each_file_that_ctxbench_is_installed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[Path] = set()
    whole = disk.sha256

    def noted(file: Path) -> str:
        read.add(file)
        return whole(file)

    monkeypatch.setattr(disk, "sha256", noted)
    digest = code_digest()
    there = {
        Path(folder, name)
        for top in (ROOT / "ctxbench", ROOT / "modules", ROOT / "networks", *ROOT.glob("science/ctxbench_science/*/"))
        for folder, _, names in os.walk(top)
        for name in names
        if not name.startswith(".") and "__pycache__" not in folder
    }
    assert read == there
    of_plugins = {".csv": "predict", ".toml": "predict", ".css": "profile", ".js": "profile"}
    there_too = {suffix for suffix, plugin in of_plugins.items() if plugin in plugins()}
    assert (
        {".py", ".pyi", ".typed", ".html"} | there_too
        <= {file.suffix for file in read}
        <= {".py", ".pyi", ".typed", ".html", *of_plugins}
    )
    data = [ROOT / "ctxbench" / "plugins" / "predict" / "efficiencies.csv"] * ("predict" in plugins())
    for changed in (ROOT / "modules" / "_ham.py", *data):
        monkeypatch.setattr(disk, "sha256", lambda file, changed=changed: whole(file) + "0" * (file == changed))
        assert code_digest() != digest
