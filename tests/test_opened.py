"""A file that a module reads is a part of its code: the run knows it, and nothing is kept that hangs on it."""

import json
from pathlib import Path

import pytest

import ctxbench
from ctxbench.base.errors import UsageError
from ctxbench.engine.cache import Cache
from ctxbench.engine.run import resume
from ctxbench.results.run_folder import RunFolder

BLOCK = """
import json, os, pathlib
from torch import nn
kernel = json.loads(pathlib.Path("{folder}/settings.json").read_text())["kernel"]
pathlib.Path("{folder}/log").write_text("written, then read")
pathlib.Path("{folder}/log").read_text()
class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.width = int(pathlib.Path("{folder}/width").read_text())
        os.environ["OWN"] = "1"
        self.heads = int(os.environ["OWN"]) + int(os.getenv("HEADS", "1")) + len(os.listdir("{folder}"))
        self.mix = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
    def forward(self, x):
        return x + self.mix(x)
"""


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_run_knows_the_files_that_a_module_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for each in (elsewhere, here):
        each.mkdir()
    monkeypatch.chdir(here)
    (elsewhere / "settings.json").write_text(json.dumps({"kernel": 1}))
    (elsewhere / "width").write_text("4")
    Path("block.py").write_text(BLOCK.format(folder=elsewhere))
    run = ctxbench.run(modules=["block.py:Block"], shape=[(1, 4, 4, 4)], static=True, out="run")
    assert run.folder.rows()[0]["params"] == 20
    (files,) = RunFolder.open(Path("run")).meta["imports"].values()
    told = {"the variable HEADS", "the answer of os.listdir"}
    assert {Path(each).name for each in files} == {"block.py", "settings.json", "width", *told}
    assert resume("run").failed == 0
    monkeypatch.setenv("HEADS", "4")
    with pytest.raises(UsageError, match=r"cannot be resumed: the variable HEADS changed since it began"):
        resume("run")
    monkeypatch.delenv("HEADS")
    (elsewhere / "settings.json").write_text(json.dumps({"kernel": 3}))
    with pytest.raises(UsageError, match=r"cannot be resumed: .*settings\.json changed since it began"):
        resume("run")


def test_a_variable_is_a_part_of_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Cache("counted")._path(b"key")
    for name in ("SHLVL", "SSH_TTY", "COLUMNS"):
        monkeypatch.setenv(name, "another")
    assert Cache("counted")._path(b"key") == before
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    assert Cache("counted")._path(b"key") != before
