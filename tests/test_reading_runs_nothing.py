"""Opening a run folder runs no code that it names: `report`, `diff` and `load` import nothing, `resume` asks first."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from report_data import ENVIRONMENT, add, definition, new_run, record

import ctxbench

Command = Callable[..., Done]
EVIL = "from pathlib import Path\nPath({mark!r}).touch()\nCLAIMS = []\n"
_seen: list[str] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in ("import", "exec", "compile", "open", "subprocess.Popen", "os.exec"):
        _seen.append(f"{event} {arguments[:2]}")


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


# What a closed form may not do to who reads it.
FORMS = ("9**9**9", "macs**macs**macs", "1//0", "min()")


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder that names its sender's code wherever code can be named; the working folder is another one."""
    sent, here = tmp_path / "sent", tmp_path / "here"
    for each in (sent, here):
        each.mkdir()
    monkeypatch.chdir(here)
    title = "Context modules"
    (sent / "evil.toml").write_text(f'title = "{title}"\nmodules = ["sa"]\n')
    (sent / "evil.py").write_text(EVIL.format(mark=str(tmp_path / "PWNED")))
    evil = f"{sent / 'evil.py'}:Tiny"
    about = {
        "environment": {**ENVIRONMENT, "driver": None},
        "suite": "evil",
        "suite_file": {"file": str(sent / "evil.toml"), "sha256": "0" * 64, "commit": ""},
        "sources": {evil: {"file": str(sent / "evil.py"), "sha256": "0" * 64}},
    }
    named = definition(title=title, published=None, modules=[evil])
    folder = new_run(sent / "run", definition=named, **about)
    add(folder, record(evil))
    return folder.path


def assert_nothing_ran(received: Path, events: list[str]) -> None:
    assert not (received.parent.parent / "PWNED").exists()
    assert not [event for event in events if "evil.py" in event]


@pytest.mark.parametrize("arguments", [("report", "{}", "--out", "out"), ("diff", "{}", "{}"), ("resume", "{}")])
def test_a_command_runs_no_code_of_a_folder(received: Path, command: Command, arguments: tuple[str, ...]) -> None:
    with heard() as events:
        done = command(*(each.format(received) for each in arguments))
    assert_nothing_ran(received, events)
    assert done.returncode == (2 if arguments[0] == "resume" else 0), done.stderr
    if arguments[0] == "resume":
        assert f"names code that is not below the working folder: {received.parent / 'evil.py'}" in done.stderr
        assert "--run-its-code" in done.stderr


def test_load_and_its_table_run_no_code(received: Path) -> None:
    with heard() as events:
        run = ctxbench.load(received)
        assert "Context modules" in run.table()
    assert len(run.frame) == 1
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


@pytest.mark.parametrize("form", FORMS)
def test_a_closed_form_of_a_folder_ends(received: Path, command: Command, form: str) -> None:
    meta = json.loads((received / "run.json").read_text())
    meta["definition"]["published"] = {"source": "x", "counts": {"macs": form}, "rows": {}}
    (received / "run.json").write_text(json.dumps(meta))
    for arguments in (("report", received, "--out", "out"), ("diff", received, received), ("resume", received)):
        done = command(*arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_a_path_that_no_system_knows_is_no_traceback(received: Path, command: Command) -> None:
    meta = json.loads((received / "run.json").read_text())
    meta["suite_file"] = {"file": "x" * 5000 + ".toml", "sha256": "", "commit": ""}
    (received / "run.json").write_text(json.dumps(meta))
    assert command("report", received, "--out", "out").returncode == 0
