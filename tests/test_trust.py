"""Code that a file names runs only if it is a module of ctxbench, of a package that needs torch, or of one's own.

Each kind of callable is tried from each kind of file: nothing of it is imported, and nothing is called.
"""

import csv
import json
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done

import ctxbench
from ctxbench.base import temporary
from ctxbench.base.errors import UsageError
from ctxbench.registry import trust
from ctxbench.registry.load import import_maker
from ctxbench.registry.reference import Reference

Command = Callable[..., Done]
CODE = """
import functools, os, pathlib
from torch import nn
pathlib.Path({mark!r}).touch()
class Tiny(nn.Module):
    def __init__(self, channels, cmd=""):
        super().__init__()
"""
BLOCK = """
from functools import partial
from os import system
from torch import nn
class Block(nn.Module):
    def __init__(self, channels, cmd=""):
        super().__init__()
def build(channels, cmd=""):
    return Block(channels)
half = partial(system, "touch PWNED")
class Other:
    def __init__(self, channels, cmd=""):
        system(cmd)
"""


class Evil:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.mark),)


def function(sent: Path, run: Path) -> str:
    return "pydoc:pipepager"


def builtin(sent: Path, run: Path) -> str:
    return "posix:system"


def partial(sent: Path, run: Path) -> str:
    """A partial that one's own file has at hand."""
    return "own.py:half"


def imported(sent: Path, run: Path) -> str:
    return "own.py:system"


def library(sent: Path, run: Path) -> str:
    return "click:launch"


def other_class(sent: Path, run: Path) -> str:
    return "torch.utils.data:DataLoader"


def namespace_package(sent: Path, run: Path) -> str:
    (run / "deep").mkdir(exist_ok=True)
    (run / "deep" / "evil.py").write_text(CODE.format(mark=str(sent / "PWNED")))
    return f"{run.name}.deep.evil:Tiny"


def stored_object(sent: Path, run: Path) -> str:
    folder = Path(tempfile.gettempdir(), f"{temporary.PREFIX}objects-x")
    folder.mkdir(exist_ok=True)
    (folder / "0.object").write_bytes(pickle.dumps(([], Evil(str(sent / "PWNED")))))
    return f"{folder / '0.object'}:Tiny"


def dotted(sent: Path, run: Path) -> str:
    return "sent.evil.more:Tiny"


def relative_path(sent: Path, run: Path) -> str:
    return "../sent/evil.py:Tiny"


def archive(sent: Path, run: Path) -> str:
    with zipfile.ZipFile("evil.zip", "w") as written:
        written.writestr("evil.py", CODE.format(mark=str(sent / "PWNED")))
    return "evil.zip.evil:Tiny"


def link(sent: Path, run: Path) -> str:
    Path("linked.py").unlink(missing_ok=True)
    Path("linked.py").symlink_to(sent / "evil.py")
    return "linked.py:Tiny"


KINDS = (
    function, builtin, partial, imported, library, other_class, namespace_package, stored_object,
    dotted, relative_path, archive, link,
)  # fmt: skip


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sender's code beside the working folder, in which are an own file and what was received."""
    sent, here = tmp_path / "sent", tmp_path / "here"
    for each in (sent, here):
        each.mkdir()
    (sent / "evil.py").write_text(CODE.format(mark=str(sent / "PWNED")))
    (here / "own.py").write_text(BLOCK)
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return sent


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of this machine, which another one may be made of."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    ctxbench.run(modules=["se"], shape=[(1, 16, 8, 8)], static=True, out=folder)
    return folder


def toml(name: str, text: str) -> Path:
    Path(name).write_text(text)
    return Path(name)


def suite(named: str, run: Path) -> tuple[Any, ...]:
    hparams = f'[hparams.{json.dumps(named)}]\ncmd = "touch PWNED"\n'
    text = f'title = "t"\nmodules = [{json.dumps(named)}]\nmetrics = ["params"]\n[axes]\nshape = [1, 8, 4, 4]\n'
    return "run", "--static", "--suite", toml("x.toml", text + hparams), "--out", "out"


def network(named: str, run: Path) -> tuple[Any, ...]:
    axes = f"[axes]\nshape = [1, 8, 4, 4]\nnetwork = [{json.dumps(named)}]\n"
    return "run", "--static", "--suite", toml("n.toml", f'title = "t"\nmodules = ["se"]\n{axes}'), "--out", "out"


TABLE = """
title = "a table"
authors = "A. Uthor"
venue = "a workshop"
year = 2026
seen = "read"
shape = [1, 16, 8, 8]
[rows.se]
{kind} = {named}
settings = {{ cmd = "touch PWNED" }}
printed = {{ params = "1.00" }}
"""


def block_of_a_table(named: str, run: Path) -> tuple[Any, ...]:
    return "audit", toml("t.toml", TABLE.format(kind="block", named=json.dumps(named)))


def network_of_a_table(named: str, run: Path) -> tuple[Any, ...]:
    return "audit", toml("t.toml", TABLE.format(kind="network", named=json.dumps(named)))


def interrupted(named: str, run: Path) -> tuple[Any, ...]:
    meta = json.loads((run / "run.json").read_text())
    meta["definition"] |= {"modules": [named], "hparams": {named: {"cmd": "touch PWNED"}}}
    (run / "run.json").write_text(json.dumps(meta | {"state": "interrupted", "tables": {}, "sources": {}}))
    for name in ("records.csv", "processes.csv"):
        (run / name).write_text((run / name).read_text().partition("\n")[0] + "\n")
    return "resume", run


def records(named: str, run: Path) -> tuple[Any, ...]:
    rows = [*csv.DictReader((run / "records.csv").open(newline=""))]
    rows[0] |= {"reference": named, "hparams": json.dumps({"cmd": "touch PWNED"}), "changed": "cmd"}
    with (run / "records.csv").open("w", newline="") as file:
        written = csv.DictWriter(file, rows[0])
        written.writeheader()
        written.writerows(rows)
    return "check", "--baseline", run


FILES = (suite, network, block_of_a_table, network_of_a_table, interrupted, records)
NOT_THERE = (dotted, archive)


@pytest.mark.plugin("audit")
@pytest.mark.plugin("check")
@pytest.mark.usefixtures("shared_server")
@pytest.mark.processes
@pytest.mark.drawn("registry", "results")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_file_has_code_run_that_it_names(
    sent: Path, whole_run: Path, command: Command, kind: Callable[[Path, Path], str]
) -> None:
    for file in FILES:
        run = Path(f"run_{file.__name__}")
        shutil.copytree(whole_run, run)
        named = kind(sent, run)
        shown = file.__name__, kind.__name__
        done = command(*file(named, run))
        assert not (sent / "PWNED").exists(), (file.__name__, done.stderr)
        assert not Path("PWNED").exists(), (file.__name__, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        code = 4 if kind in NOT_THERE and file is records else 2
        assert done.returncode == code, (*shown, done.stdout, done.stderr)


# What a constructor of a package may open or run, and the name of a file that came with a suite.
MORE = ("a/b", "https://x.y", "open(1)", "a b", "$x", "evil.yaml", ["x", "a/b"], {"activation": "x"})


@pytest.mark.plugin("audit")
@pytest.mark.plugin("check")
@pytest.mark.usefixtures("shared_server")
@pytest.mark.processes
@pytest.mark.parametrize("file", [suite, block_of_a_table, interrupted, records], ids=lambda file: file.__name__)
def test_a_file_gives_code_of_packages_numbers_and_words_alone(
    sent: Path, whole_run: Path, command: Command, file: Callable[[str, Path], tuple[Any, ...]]
) -> None:
    shutil.copytree(whole_run, "run")
    done = command(*file("torch.nn:Conv2d", Path("run")))
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "gives torch.nn:Conv2d cmd='touch PWNED', which is more than a number or a word" in done.stderr


def test_a_file_may_give_numbers_and_words_and_a_person_more(sent: Path) -> None:
    names = ("torch.nn:Conv2d", "own.py:Block", "ctxbench.networks.mmsegmentation:PSPNet")
    conv, own, network = (Reference.read(each, Path("x.toml")) for each in names)
    for plain in (1, 0.5, True, None, "gelu", "yolo11n.yaml", "", [1, "relu"], (3, 3)):
        trust.check_settings(conv, {"a": plain})
    Path("evil.yaml").touch()
    for value in MORE:
        trust.check_settings(own, {"a": value})
        for each in (conv, network):
            with pytest.raises(trust.RefusedReference, match=r"x\.toml gives .* a="):
                trust.check_settings(each, {"a": value})


@pytest.mark.plugin("claims")
def test_the_claims_beside_a_suite_of_elsewhere_are_not_run(sent: Path, command: Command) -> None:
    path = sent / "a-suite.toml"
    path.write_text('title = "t"\nmodules = ["se"]\nmetrics = ["params"]\n[axes]\nshape = [1, 16, 4, 4]\n')
    beside = sent / "a_suite.py"
    beside.write_text(f"import pathlib\npathlib.Path({str(sent / 'PWNED')!r}).touch()\nCLAIMS = []\n")
    done = command("run", "--static", "--suite", path, "--out", "out")
    assert (done.returncode, (sent / "PWNED").exists(), Path("out").exists()) == (2, False, False)
    assert f"{path} names code that is not below the working folder: {beside}" in done.stderr


def test_code_of_one_s_own_and_of_packages_that_need_torch_may_run(sent: Path) -> None:
    run = Path("run")
    run.mkdir()
    (run / "run.json").touch()
    (run / "own.py").write_text(BLOCK)
    Path("mine").mkdir()
    Path("mine", "inner.py").write_text(BLOCK)
    for name in ("se", "own.py:build", "own:Block", "mine.inner:build", "torch.nn:Identity", "ctxbench.modules.se:x"):
        assert trust.refused(Reference.read(name, Path("x.toml"))) == "", name
    for name in ("own.py:build", "torch.nn:Identity"):
        import_maker(Reference.read(name, Path("x.toml")))
    for name in ("own.py:half", "own.py:system", "own.py:Other", "torch.nn.init:zeros_"):
        with pytest.raises(trust.RefusedReference, match="no class"):
            import_maker(Reference.read(name, Path("x.toml")))
        import_maker(Reference.parse(name)) if name != "own.py:Other" else None  # a person may
    assert "not below the working folder" in trust.refused(Reference.read("run/own.py:Block", Path("x.toml")))
    assert "not below the working folder" in trust.refused(Reference.read("run.own:Block", Path("x.toml")))


def test_the_packages_around_a_file_are_judged_with_it(sent: Path) -> None:
    Path("package").mkdir()
    Path("package", "inner.py").write_text(BLOCK)
    Path("package", "__init__.py").symlink_to(sent / "evil.py")
    for name in ("package/inner.py:Block", "package.inner:Block"):
        assert str(sent / "evil.py") in trust.refused(Reference.read(name, Path("x.toml")))
    with pytest.raises(
        UsageError, match=r"x.toml names code that is not below .*; read it, and run it from its folder"
    ):
        trust.said("package.inner:Block", Path("x.toml"))
