"""Opening a run folder runs no code that it names, and opens no file but its own.

What reads imports nothing of it; `resume` and `check --baseline`, which run code, ask first. So do other files of data:
suites, data sheets and published tables run nothing but the modules and networks that they are there to name.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from report_data import ENVIRONMENT, add, definition, new_run, record, table3_run

import ctxbench
from ctxbench.engine.client import ForkServer
from ctxbench.results.tables import tables

Command = Callable[..., Done]
EVIL = "from pathlib import Path\nPath({mark!r}).touch()\nCLAIMS = []\n"
_seen: list[str] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in ("import", "exec", "compile", "open", "subprocess.Popen", "os.exec"):
        _seen.append(f"{event} {arguments[:1] if event == 'open' else arguments[:3]}")


sys.addaudithook(_listen)


@contextmanager
def heard() -> Iterator[list[str]]:
    """The events of imports, of code that is compiled or run, of files that are opened and programs that start."""
    global _seen
    found: list[str] = []
    _seen = found
    try:
        yield found
    finally:
        _seen = None


BLOCK = """
from torch import nn
class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 1)
    def forward(self, x):
        return x + self.mix(x).mean((2, 3), keepdim=True)
"""
TINY = """
title = "tiny"
modules = ["se"]
metrics = ["params"]
[axes]
shape = [1, 16, 8, 8]
"""
# What a closed form may not do to who reads it.
FORMS = ("9**9**9", "macs**macs**macs", "1//0", "min()")


@pytest.fixture
def suite() -> str:
    return "evil"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True)


@pytest.fixture
def received(suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder that names its sender's code wherever code can be named; the working folder is another one.

    It is in a repository of its sender's, whose settings name a program that git starts.
    """
    sent, here = tmp_path / "sent", tmp_path / "here"
    for each in (sent, here):
        each.mkdir()
    monkeypatch.chdir(here)
    title = "Context modules"
    (sent / "evil.toml").write_text(f'title = "{title}"\nmodules = ["sa"]\n')
    (sent / "evil.py").write_text(EVIL.format(mark=str(tmp_path / "PWNED")))
    os.mkfifo(sent / "sheet.toml")
    git(sent, "init", "--quiet")
    git(sent, "config", "core.fsmonitor", f"touch {tmp_path / 'PWNED'}")
    evil = f"{sent / 'evil.py'}:Tiny"
    about = {
        "environment": {**ENVIRONMENT, "driver": None},
        "suite": suite,
        "suite_file": {"file": str(sent / "evil.toml"), "sha256": "0" * 64, "commit": ""},
        "sources": {evil: {"file": str(sent / "evil.py"), "sha256": "0" * 64}},
    }
    named = definition(title=title, published=None, modules=[evil])
    folder = new_run(sent / "run", definition=named, **about)
    for execution, device in (("eager", "cpu"), (str(sent / "evil.py"), str(sent / "sheet.toml"))):
        add(folder, record(evil, reference=evil, network=evil, execution=execution, device=device))
    return folder.path


def assert_nothing_ran(received: Path, events: list[str], *hashed: Path) -> None:
    """Nothing of the sender's was imported, compiled or run, and no file opened but the run's and what is `hashed`."""
    sent, files = received.parent, [*hashed, *(received / name for name in (*tables(), "run.json", "log.txt"))]
    assert not (sent.parent / "PWNED").exists()
    programs = [event for event in events if event.startswith(("subprocess", "os.exec"))]
    own = (
        rf"\('(git|fc-list|uname|nvidia-smi)',|\('{re.escape(sys.executable)}', \[[^]]*'-P', '-m', 'ctxbench\.worker\."
    )
    assert [event for event in programs if not re.search(own, event)] == []
    touched = [event for event in events if str(sent) in event]
    assert {*touched} - {f"open ({str(file)!r},)" for file in files} == set()
    assert not [name for name, module in sys.modules.items() if str(sent) in str(getattr(module, "__file__", ""))]


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["evil", "../../evil", "table3"])
def test_a_command_that_reads_runs_nothing(received: Path, command: Command) -> None:
    for words in (("report", received, received), ("diff", received, received)):
        with heard() as events:
            done = command(*words)
        assert_nothing_ran(received, events)
        assert done.returncode == 0, done.stderr
        assert any(str(received / "run.json") in event for event in events)


TABLE = """
title = "a table"
authors = "A. Uthor"
venue = "a workshop"
year = 2026
seen = "read"
shape = [1, 16, 8, 8]
[rows.se]
{block}
printed = {{ params = "1.00" }}
"""


@pytest.mark.slow
def test_a_published_table_beside_a_run_is_data(received: Path, command: Command) -> None:
    table = received.with_name("evil.toml")
    evil = json.dumps(f"{table.with_name('evil.py')}:Tiny")
    table.write_text(TABLE.format(block=f"block = {evil}\nnetwork = {evil}"))
    with heard() as events:
        done = command("report", received, "--published", table, "--out", "out")
    assert_nothing_ran(received, events, table)
    assert done.returncode == 0, done.stderr


@pytest.mark.plugin("audit")
@pytest.mark.processes
def test_an_audit_runs_the_classes_that_its_table_names_alone(received: Path, command: Command) -> None:
    table = received.with_name("evil.toml")
    table.write_text(TABLE.format(block=""))
    with heard() as events:
        done = command("audit", table)
    assert_nothing_ran(received, events, table)
    assert (done.returncode, "se" in done.stdout) == (0, True), done.stderr


@pytest.mark.processes
def test_a_suite_and_its_repository_run_nothing(received: Path, command: Command) -> None:
    suite = received.with_name("tiny.toml")
    suite.write_text(TINY)
    git(suite.parent, "add", suite.name)
    git(suite.parent, "-c", "core.fsmonitor=false", "commit", "--quiet", "--message", "a suite")
    (suite.parents[1] / "PWNED").unlink()  # git's own, when the file was added
    with heard() as events:
        done = command("run", "--suite", suite, "--out", "new")
    assert (done.returncode, (suite.parents[1] / "PWNED").exists()) == (0, False), done.stderr
    meta = ctxbench.load("new").folder.meta
    assert len(meta["suite_file"]["commit"]) == 40
    asked = [
        event for event in events if str(suite.parent) in event and not event.startswith("subprocess.Popen ('git'")
    ]
    assert {*asked} == {f"open ({str(suite)!r},)"}


@pytest.mark.plugin("history")
@pytest.mark.processes
def test_the_runs_of_a_history_are_data(received: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("engine.client", "plugins.history.costs"):  # one in each commit's tree
        monkeypatch.setattr(f"ctxbench.{name}.ForkServer", ForkServer)
    Path("block.py").write_text(BLOCK)
    git(Path(), "init", "--quiet")
    git(Path(), "add", "block.py")
    git(Path(), "commit", "--quiet", "--message", "a block")
    with heard() as events:
        done = command("history", "block.py:Block", "--shape", "1,8,4,4", "--runs", received)
    assert_nothing_ran(received, events)
    assert done.returncode == 0, done.stderr
    assert f"{received} has no time of these modules" in done.stdout


@pytest.mark.plugin("compare")
@pytest.mark.processes
def test_a_run_whose_rows_are_reused_is_data(received: Path, command: Command) -> None:
    Path("block.py").write_text(BLOCK)
    Path("tiny.toml").write_text(TINY)
    earlier, evil = received.with_name("earlier"), f"{received.with_name('evil.py')}:Tiny"
    assert command("run", "--suite", "tiny.toml", "--out", earlier).returncode == 0
    meta = json.loads((earlier / "run.json").read_text())
    about = json.loads((received / "run.json").read_text())
    meta |= {"suite_file": about["suite_file"], "sources": about["sources"], "tables": {}}
    meta["definition"]["modules"] = [evil]
    (earlier / "run.json").write_text(json.dumps(meta))
    for name in ("records.csv", "processes.csv"):
        text = (earlier / name).read_text()
        (earlier / name).write_text(text.replace("ctxbench.modules.se:SqueezeExcitation", evil))
        assert evil in (earlier / name).read_text()
    with heard() as events:
        done = command(
            "compare", f"{Path.cwd()}/block.py:Block", "--modules", "se", "--suite", "tiny.toml", "--rank-by", "params",
            "--reuse", earlier, "--out", "new",
        )  # fmt: skip
    assert_nothing_ran(earlier, events)
    assert done.returncode == 0, done.stderr
    assert ctxbench.load("new").folder.meta["reused"]["cases"] != []


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        *(("list", f"--{each}") for each in ("suites", "networks", "devices")),
        ("env",),
        ("new", "block.py"),
        ("new", "--around", "evil.py:Tiny"),
        pytest.param(("show", "se"), marks=[pytest.mark.plugin("show"), pytest.mark.processes]),
    ],
)
def test_a_command_obeys_no_file_of_the_working_folder(
    received: Path, command: Command, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(received.parent)
    with heard() as events:
        done = command(*arguments)
    assert_nothing_ran(received, events, *[Path(each) for each in arguments if each.endswith(".py")])
    assert done.returncode == 0, done.stderr


# As the script `ctxbench`, one after the other.
COMMANDS = """
import sys
from ctxbench.cli import main
for words in ("list", "env", "list --networks", "diff run run", "report whole --figures cost"):
    sys.argv = ["ctxbench", *words.split()]
    try:
        main()
    except SystemExit as end:
        print("ended with", end.code or 0, file=sys.stderr)
"""


@pytest.mark.processes
def test_no_library_is_taken_from_the_working_folder(received: Path) -> None:
    sent = received.parent
    for name in ("torch", "pynvml", "timm", "numpy", "pandas", "matplotlib", "json", "ctxbench", "sitecustomize"):
        (sent / f"{name}.py").write_text(EVIL.format(mark=str(sent.parent / "PWNED")))
    table3_run(sent / "whole")
    (sent / "matplotlibrc").write_text("text.usetex: True\nbackend: module://evil\n")
    done = subprocess.run([sys.executable, "-P", "-c", COMMANDS], cwd=sent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("ended with 0\n")) == (0, 5), done.stderr
    assert not (sent.parent / "PWNED").exists()


@pytest.mark.parametrize(
    "arguments", [("resume", "{}"), pytest.param(("check", "--baseline", "{}"), marks=pytest.mark.plugin("check"))]
)
def test_a_command_that_measures_asks_before_it_runs_the_code_of_a_folder(
    received: Path, command: Command, arguments: tuple[str, ...]
) -> None:
    with heard() as events:
        done = command(*(each.format(received) for each in arguments))
    assert_nothing_ran(received, events)
    assert done.returncode == 2, done.stderr
    assert f"names code that is not below the working folder: {received.parent / 'evil.py'}" in done.stderr
    assert "--run-its-code" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("resume",), pytest.param(("check", "--baseline"), marks=pytest.mark.plugin("check"))]
)
def test_code_that_may_run_is_that_which_was_measured(
    received: Path, command: Command, arguments: tuple[str, ...]
) -> None:
    with heard() as events:
        done = command(*arguments, received, "--run-its-code")
    assert_nothing_ran(received, events, received.parent / "evil.py")
    assert f"{received.parent / 'evil.py'} is not what {received} was measured by" in done.stderr
    assert done.returncode == 2


def test_load_and_its_table_run_no_code(received: Path) -> None:
    with heard() as events:
        run = ctxbench.load(received)
        assert "Context modules" in run.table()
        assert ctxbench.diff(received, received).tables
    assert len(run.frame) == 2
    assert_nothing_ran(received, events)


def test_code_within_the_run_folder_is_not_one_s_own(
    received: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = received / "evil.py"
    inside.write_text((received.parent / "evil.py").read_text())
    meta = json.loads((received / "run.json").read_text())
    meta["definition"]["modules"] = [f"{inside}:Tiny"]
    meta["suite_file"] = {}
    (received / "run.json").write_text(json.dumps(meta))
    monkeypatch.chdir(received.parent)
    done = command("resume", received)
    assert (done.returncode, str(inside) in done.stderr) == (2, True)
    assert_nothing_ran(received, [])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_closed_form_of_a_folder_ends(received: Path, command: Command, form: str) -> None:
    meta = json.loads((received / "run.json").read_text())
    meta["definition"]["published"] = {"source": "x", "counts": {"macs": form}, "rows": {}}
    (received / "run.json").write_text(json.dumps(meta))
    for arguments in (("report", received, "--out", "out"), ("diff", received, received), ("resume", received)):
        done = command(*arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.slow
def test_a_path_that_no_system_knows_is_no_traceback(received: Path, command: Command) -> None:
    meta = json.loads((received / "run.json").read_text())
    meta["suite_file"] = {"file": "x" * 5000 + ".toml", "sha256": "", "commit": ""}
    (received / "run.json").write_text(json.dumps(meta))
    assert command("report", received, "--out", "out").returncode == 0
