"""Odd places to print to, and texts that would command a terminal."""

import errno
import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Done
from rich.table import Table

from ctxbench import cli
from ctxbench.base.terminal import console
from ctxbench.base.texts import safe
from ctxbench.cli import surroundings
from ctxbench.engine.progress import Live, Plain
from ctxbench.model.record import Record

COMMANDS = "\x1b]0;title\x07 \x1b[2J \u202eabc\u2066 \udcff \x9b2J"
ESCAPED = r"\x1b]0;title\x07 \x1b[2J \u202eabc\u2066 \udcff \x9b2J"


def words(*arguments: object) -> str:
    """The words by which a shell runs ctxbench, wherever the interpreter and the files are."""
    return shlex.join([sys.executable, "-m", "ctxbench", *map(str, arguments)])


LIST = words("list")


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert safe(COMMANDS) == ESCAPED
    assert safe(ESCAPED) == ESCAPED
    assert safe("λ ⁰ é 漢\n\t²") == "λ ⁰ é 漢\n\t²"


def test_a_table_and_markup_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    table = Table("name")
    table.add_row("\x1b[2J [red]x[/red] [link=http://a]b[/link] :smile:")
    console(width=100).print(table)
    assert r"\x1b[2J [red]x[/red] [link=http://a]b[/link] :smile:" in shown.getvalue()
    assert "\x1b" not in shown.getvalue()


@pytest.mark.parametrize("reporter", [Plain, Live])
def test_progress_shows_a_message_escaped_and_on_one_line(
    reporter: type[Plain] | type[Live], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    record = Record(
        case="mine [bold]", module="m", title="", family="", reference="", hparams="{}", changed="",
        batch=1, channels=1, height=1,
        width=1, dtype="float32", memory_format="contiguous", execution="eager", threads=None, device="cpu",
        status="error", message=f"{COMMANDS}\n::error::forged",
    )  # fmt: skip
    reporter().done(record)
    printed = capsys.readouterr().err
    assert "mine [bold]" in printed
    assert r"\x1b]0;title" in printed
    assert "\n::error" not in printed
    assert not set(printed) & set("\x1b\x07\u202e\x9b")


@pytest.mark.processes
def test_an_ascii_terminal_shows_a_question_mark(tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    module.write_text(
        "from torch import nn\nfrom ctxbench import register\n"
        '@register("mine", title="λ module", family="other")\nclass Mine(nn.Module):\n    pass\n'
    )
    done = shell(words("show", f"{module}:Mine"), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "? module" in done.stdout


@pytest.mark.processes
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_closed_stream_takes_nothing_from_the_work(closed: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    done = shell(f"{words('new', path)} {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text().startswith('"""')


@pytest.mark.processes
def test_a_full_device_is_a_sentence() -> None:
    done = shell(f"{LIST} > /dev/full")
    assert (done.returncode, done.stderr) == (
        2, "ctxbench: cannot write to standard output: No space left on device\n"
    )  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize(("command", "code"), [(LIST, 0), (words("show", "sa", "--set", "x=1"), 2)])
def test_a_reader_who_leaves_changes_no_exit_code(command: str, code: int, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    done = shell(f"{{ {command}; echo $? > {shlex.quote(str(ended))}; }} | true")
    assert int(ended.read_text()) == code
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.processes
def test_a_torch_of_the_users_is_named(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("x = 1\n")
    done = shell(words("show", "se", "--shape", "1,64,8,8"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert f"`import torch` finds {tmp_path / 'torch.py'}, not the installed package" in done.stderr
    assert "Traceback" not in done.stderr


def test_columns_of_zero_say_nothing_of_the_width(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., Done]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = command("show", "se").stdout
    assert "Squeeze" in wide
    monkeypatch.setenv("COLUMNS", "0")
    assert command("show", "se").stdout == wide


@pytest.mark.parametrize("arguments", [("list",), ("memory", "se"), ("run", "--static")])
def test_a_working_folder_that_is_gone_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Done], arguments: tuple[str, ...]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ctxbench: the working folder cannot be used (No such file or directory)")


@pytest.fixture
def signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a process, whatever started the tests ignores, and are as before once the test is over."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_comes_twice_leaves_no_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    reached = []

    def app() -> None:
        try:
            with tempfile.TemporaryDirectory(dir=tmp_path):
                signal.raise_signal(number)
        except KeyboardInterrupt:
            signal.raise_signal(number)  # the kernel's and the shell's, while the command cleans up
            reached.append([*tmp_path.iterdir()])
            raise

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert reached == [[]]
    assert capsys.readouterr().err == "interrupted: all files that were written are complete\n"


@pytest.mark.usefixtures("signals")
def test_a_signal_that_the_caller_ignores_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(cli, "app", lambda: signal.raise_signal(signal.SIGHUP))
    cli.main()


@pytest.mark.processes
def test_an_interrupt_while_the_command_line_is_imported_prints_nothing() -> None:
    code = """
import signal, sys
from ctxbench.__main__ import main
class Interrupts:
    def find_spec(name, *others):
        if name == "ctxbench.cli":
            signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts)
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.processes
def test_too_few_file_descriptors_are_a_sentence(tmp_path: Path) -> None:
    command = words("run", "--static", "--modules", "linear", "--shape", "1,8,6,5", "--out", tmp_path / "run")
    done = shell(f"ulimit -n 8; {command}")
    assert (done.returncode, done.stderr) == (2, "ctxbench: the system refuses: Too many open files\n")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "there is not enough memory (see `ulimit -v`)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "the system refuses: Cannot allocate memory"),
        (ImportError("x.so: failed to map segment\nmore"), "a package cannot be loaded: x.so: failed to map segment"),
        (FileNotFoundError(errno.ENOENT, "No such file"), ""),
        (KeyError("a defect"), ""),
    ],
)
def test_only_what_the_machine_lacks_is_not_our_defect(error: Exception, sentence: str) -> None:
    assert surroundings.sentence(error) == sentence


def test_an_interrupt_that_left_a_package_half_imported_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise AttributeError("partially initialized module 'pandas'")  # noqa: B904  # as it happens

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted: all files that were written are complete\n"


def test_a_command_that_is_interrupted_says_so(command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.results.environment.describe", lambda: signal.raise_signal(signal.SIGTERM))
    done = command("env")
    assert (done.returncode, done.stderr) == (130, "interrupted: all files that were written are complete\n")


def test_an_interrupt_while_a_command_is_imported_is_told(
    command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "imported", lambda name: signal.raise_signal(signal.SIGTERM))
    done = command("env")
    assert (done.returncode, done.stderr) == (130, "interrupted: all files that were written are complete\n")
