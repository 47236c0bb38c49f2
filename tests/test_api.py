"""`ctxbench.run` and `load` from Python: what names a module, what a run knows of its sources, how it is read back."""

import doctest
import functools
import inspect
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import Shared
from forked import Forked
from torch import Tensor, nn

import ctxbench
from ctxbench import api, registry
from ctxbench.base.errors import UsageError
from ctxbench.engine.run import resume
from ctxbench.model.hparams import combinations, parse
from ctxbench.registry.load import import_source
from ctxbench.results.run_folder import RunFolder

SuiteFile = Callable[..., Path]
FAILING = Path(__file__).parent / "fixtures" / "failing.py"
MODULE = """
from torch import nn

class Mine(nn.Module):
    def __init__(self, channels: int, *, width: int = 2):
        super().__init__()
        self.narrow = nn.Conv2d(channels, width, 1)
        self.widen = nn.Conv2d(width, channels, 1)
    def forward(self, x):
        return x + self.widen(self.narrow(x).mean((2, 3), keepdim=True))
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def static(suite: Path, out: Path, **options: object) -> api.Run:
    return ctxbench.run(str(suite), static=True, out=out, **options)  # type: ignore[arg-type]  # passed through


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_modules_are_names_or_classes_one_or_several(suite_file: SuiteFile, tmp_path: Path) -> None:
    suite = suite_file(["sa"])
    cls = registry.get("linear").load()
    assert static(suite, tmp_path / "one", modules="a2").frame["module"].tolist() == ["a2"]
    assert static(suite, tmp_path / "two", modules=cls).frame["module"].tolist() == ["linear"]
    assert static(suite, tmp_path / "three", modules=["a2", cls]).frame["module"].tolist() == ["a2", "linear"]


class Narrow(nn.Module):
    """Has `width` filters of one position."""

    def __init__(self, channels: int, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.down, self.up = nn.Conv2d(channels, width, 1), nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.up(self.down(x))
        return out


@pytest.mark.parametrize(
    ("things", "names", "params"),
    [
        ([Narrow(16)], ["Narrow"], [280]),
        ([Narrow(16, width=4), Narrow(16, 2)], ["Narrow(width=4)", "Narrow(width=2)"], [148, 82]),
        ([Narrow(16), Narrow(16)], ["Narrow", "Narrow_2"], [280, 280]),
        ([functools.partial(Narrow, width=4)], ["Narrow(width=4)"], [148]),
        (
            [lambda channels: Narrow(channels, 4), lambda channels: Narrow(channels)],
            ["Narrow(width=4)", "Narrow"],
            [148, 280],
        ),
        ([type("Here", (Narrow,), {"__module__": "__main__"})], ["Here"], [280]),
    ],
)
def test_an_object_of_the_session_is_built_from_a_reference(
    things: list[Any], names: list[str], params: list[int]
) -> None:
    entries = [registry.get(each) for each in registry.references_of(things)]
    assert [entry.key for entry in entries] == names
    assert [sum(each.numel() for each in entry.build(16).parameters()) for entry in entries] == params


def test_an_instance_is_copied_for_its_own_width_alone() -> None:
    block = Narrow(16)
    entry = registry.get(registry.references_of([block])[0])
    assert entry.made_for == 16
    with torch.device("meta"):
        assert entry.build(16).up.weight.device.type == "meta"  # type: ignore[union-attr]  # up is a layer
    copy = entry.build(16)
    assert copy is not block
    assert torch.equal(copy.up.weight, block.up.weight)  # type: ignore[arg-type, union-attr]  # up is a layer
    with pytest.raises(
        UsageError, match=r"^Narrow is made for 16 channels and not for 32: take inputs \[B, 16, H, W\]"
    ):
        entry.build(32)


@pytest.mark.parametrize("kind", ["another session", "a run folder", "a link", "a linked folder"])
def test_an_object_that_this_session_has_not_stored_is_not_read(tmp_path: Path, kind: str) -> None:
    stored, _, name = registry.references_of([Narrow(16)])[0].rpartition(":")
    own = Path(stored)
    planted = {
        "another session": own.parent.with_name("ctxbench-objects-x") / "0.object",
        "a run folder": tmp_path / "0.object",
        "a link": own.with_name("link.object"),
        "a linked folder": own.parent.with_name(f"{own.parent.name}x") / own.name,
    }[kind]
    try:
        if kind == "a link":
            planted.symlink_to(own)
        elif kind == "a linked folder":
            planted.parent.symlink_to(own.parent)
        else:
            planted.parent.mkdir(exist_ok=True)
            shutil.copy(own, planted)
        with pytest.raises(UsageError, match="is no object of this Python session"):
            registry.get(f"{planted}:{name}").build(16)
    finally:
        planted.unlink() if kind == "a link" else planted.parent.unlink() if "linked" in kind else shutil.rmtree(
            planted.parent
        )


def test_what_no_other_process_can_have_is_told() -> None:
    block = Narrow(16)
    block.lock = threading.Lock()  # type: ignore[assignment]  # no module
    with pytest.raises(UsageError, match="Narrow cannot be passed to another process: cannot pickle"):
        registry.references_of([block])


def test_a_class_outside_a_package_is_named_by_its_file(module: Path) -> None:
    cls = import_source(str(module)).Mine
    assert registry.references_of([cls]) == [f"{module.resolve()}:Mine"]


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_setting_given_twice_is_a_grid_and_a_column_of_the_frame(
    suite_file: SuiteFile, module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # below which a suite may name code
    chosen = parse(["width=3", "Mine.width=4", "Mine.width=5"])
    assert chosen == {"": {"width": 3}, "Mine": {"width": [4, 5]}}
    assert parse(["width=3", "width=3"]) == {"": {"width": 3}}
    assert combinations({"a": [1, 2], "b": 3}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    run = static(suite_file([f"{module}:Mine", "sa"]), tmp_path / "run", hparams={"Mine": {"width": [4, 5]}})
    assert run.frame["params"].tolist()[:2] == [8 * 4 + 4 + 4 * 8 + 8, 8 * 5 + 5 + 5 * 8 + 8]
    assert run.frame["hparams.width"].tolist()[:2] == [4, 5]
    assert run.frame["hparams.width"].isna().tolist() == [False, False, True]


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_run_is_loaded_and_says_in_a_line_what_it_is(suite_file: SuiteFile, tmp_path: Path) -> None:
    run = static(suite_file(["sa", "linear"]), tmp_path / "run")
    loaded = ctxbench.load(tmp_path / "run")
    assert loaded.frame.equals(run.frame)
    assert repr(loaded) == f"Run('{tmp_path / 'run'}': 2 ok)"
    with pytest.raises(UsageError, match=r"records\.csv is a file; name the run folder that it is in, .*run"):
        ctxbench.load(tmp_path / "run" / "records.csv")


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_run_keeps_the_sources_that_it_measured(
    suite_file: SuiteFile, module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = suite_file([f"{module}:Mine", "sa"])
    run = static(suite, tmp_path / "run")
    meta = json.loads((run.path / "run.json").read_text())
    assert meta["sources"]["Mine"]["file"] == "mine.py"
    assert len(meta["sources"]["sa"]["sha256"]) == 64
    assert meta["sources"]["Mine"]["commit"] is None  # in no repository
    assert meta["suite_file"]["file"] == suite.name
    assert run.frame["reference"].tolist() == ["mine.py:Mine", "ctxbench.modules.sa:SelfAttention"]
    assert resume(run.path).failed == 0


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_settings_of_a_module_that_is_not_asked_for_are_left_out(
    suite_file: SuiteFile, module: Path, tmp_path: Path
) -> None:
    suite = suite_file([f"{module}:Mine", "sa"])
    suite.write_text(suite.read_text() + "[hparams.Mine]\nwidth = [3, 4]\n")
    assert static(suite, tmp_path / "run", modules=["sa"]).frame["module"].tolist() == ["sa"]


def test_a_run_that_is_interrupted_before_its_first_process_can_be_resumed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"state": "interrupted"})
    assert RunFolder.open(folder.path).finished() == {}
    assert RunFolder.open(folder.path).frame().empty


@pytest.mark.usefixtures("shared_server")
def test_a_run_shows_itself(tmp_path: Path) -> None:
    run = ctxbench.run("quick", modules=["se"], shape=(1, 16, 4, 4), static=True, out=tmp_path / "run")
    assert list(run.known["module"]) == ["se"]
    assert "latency_infer_ms" in run.frame
    assert "latency_infer_ms" not in run.known
    assert "Squeeze and excitation" in run.table()
    assert "<table" in run._repr_html_()


@pytest.mark.parametrize("modules", [3, ["sa", None]])
def test_what_is_no_module_is_a_sentence(modules: Any) -> None:
    with pytest.raises(UsageError, match="it takes names such as 'sa'"):
        ctxbench.run("quick", modules=modules)


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_predictions_are_numbers_and_say_what_the_commands_print(module: Path) -> None:
    found = ctxbench.predict_memory(f"{module}:Mine", (1, 8, 4, 4), target="cpu", hparams={"width": 3})
    assert (found.value.origin, found.value.value % 4) == ("predicted", 0)
    assert f"predicted peak on cpu {found.value.value / 2**20:.2f} MiB" in found.lines[0]
    assert found.frame.columns[0] == "MiB"
    time = ctxbench.predict_time("linear", (4, 512, 128, 128), "t4", mode="train", optimizer="sgd", dtype="float32")
    assert 0 < time.value.low < time.value.value < time.value.high
    assert f"{time.value.text()} ms [80 % band]" in time.lines[0]
    assert "<table" in time._repr_html_()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ctxbench.predict_memory("sa", mode="both"), "mode 'both'"),
        (lambda: ctxbench.predict_memory("sa", target="tpu"), "device 'tpu'"),
        (lambda: ctxbench.predict_memory("sa", memory_format="x"), "memory_format 'x'"),
        (lambda: ctxbench.predict_time("sa", None, "t4", optimizer="adam"), "optimizer 'adam'"),
        (lambda: ctxbench.predict_time("sa", None, "t4", mode="infer", loss="cross-entropy"), "are of a training step"),
        (lambda: ctxbench.choose((1, 8, 4, 4), "cpu"), "device cpu: choose measures nothing"),
        (lambda: ctxbench.choose((1, 8, 4, 4), "t4", mode="both"), "mode 'both'"),
        (lambda: ctxbench.check(cast(Any, Narrow(16))), "against is Narrow; it takes a commit"),
        (lambda: ctxbench.check("HEAD", Narrow(16)), "check takes classes of files, or their names"),
        (lambda: ctxbench.compare("sa", rank_by="beauty"), "quantity to rank by 'beauty'"),
    ],
)
def test_wrong_arguments_are_sentences(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        call()


BLOCK = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        return x + self.scale * x.mean((2, 3), keepdim=True)
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", [name for name in dir(ctxbench) if inspect.isfunction(getattr(ctxbench, name))])
@pytest.mark.usefixtures("shared_server")
def test_the_example_in_a_docstring_runs(
    name: str, suite_file: SuiteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shared, "of_tree", Forked)
    suite_file(["sa"], ("params", "macs"))
    (tmp_path / "block.py").write_text(BLOCK, encoding="utf-8")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "block.py"), (*identity, "commit", "-qm", "One")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    text = inspect.getdoc(getattr(ctxbench, name)) or ""
    example = doctest.DocTestParser().get_doctest(text, {"ctxbench": ctxbench, "__name__": __name__}, name, None, None)
    said: list[str] = []
    ran = doctest.DocTestRunner().run(example, out=said.append)
    assert (ran.failed, bool(ran.attempted)) == (0, True), "".join(said)
