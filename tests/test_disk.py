"""Files that a person names: folders, pipes, devices, links in a circle, what may not be read, disks that are full."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Done

from ctxbench.base import disk, temporary
from ctxbench.base.errors import UsageError
from ctxbench.results.run_folder import RunFolder

Command = Callable[..., Done]


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def latin(path: Path) -> None:
    path.write_bytes(b"a = 1\nb = '\xe9'\n")


# What may lie in the place of a file, and what is said of it.
IN_ITS_PLACE: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "cannot read {path}: it is a folder"),
    "pipe": (os.mkfifo, "cannot read {path}: it is no regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "cannot read {path}: it is no regular file"),
    "circle": (circle, "cannot read {path}: Too many levels of symbolic links"),
    "nothing": (lambda path: None, "there is no file {path}"),
    "latin": (latin, "{path}, line 2: the text is not UTF-8"),
}


@pytest.mark.parametrize("kind", IN_ITS_PLACE)
def test_what_is_no_file_of_text_is_a_sentence(tmp_path: Path, kind: str) -> None:
    make, sentence = IN_ITS_PLACE[kind]
    make(tmp_path / "x")
    with pytest.raises(UsageError) as caught:
        disk.read_text(tmp_path / "x")
    assert str(caught.value).startswith(sentence.format(path=tmp_path / "x"))


def test_a_path_that_cannot_be_one_is_a_sentence() -> None:
    for read in (disk.read_bytes, disk.whole):
        with pytest.raises(UsageError, match=r"cannot read .*: embedded null (byte|character)"):
            read(Path("a\0b"))


def test_a_mark_of_utf_8_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbfa = [[1]]\n")
    assert disk.read_toml(tmp_path / "x.toml") == {"a": [[1]]}


def test_a_file_is_as_deep_as_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[" * disk.DEEPEST + "]" * disk.DEEPEST)
    disk.read_json(path)
    for levels in (disk.DEEPEST + 1, 100_000):
        path.write_text("[" * levels + "]" * levels)
        with pytest.raises(UsageError, match=r"x\.json is nested more than 64 levels deep"):
            disk.read_json(path)


def not_readable(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """As for a user who has no right to read it; root has."""
    read = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("run.json", kind) for kind in ("folder", "pipe", "circle", "no right")),
        *(("records.csv", "folder"), ("processes.csv", "pipe")),
    ],
)
def test_each_command_says_what_is_wrong_with_a_run_folder(
    small_run: RunFolder, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    run = small_run.path
    damaged = run / name
    sentence = "cannot read {path}: Permission denied"
    if kind == "no right":
        not_readable(monkeypatch, damaged)
    else:
        damaged.unlink()
        make, sentence = IN_ITS_PLACE[kind]
        make(damaged)
    out = ("--out", tmp_path / "report")
    for arguments in (("report", run, *out), ("check", "--baseline", run), ("resume", run, "--in-process")):
        done = command(*arguments)
        assert (done.returncode, done.stderr) == (2, f"ctxbench: {sentence.format(path=damaged)}\n")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        *((("run", "--suite", "x.toml"), kind) for kind in ("folder", "pipe", "device", "circle")),
        (("predict", "se", "--for", "x.toml"), "device"),
        *((("show", "x.py:X"), "folder"), (("show", "x.py:X"), "pipe")),
        *((("check", "--baseline", "x.csv"), "folder"), (("check", "--baseline", "x.csv"), "circle")),
    ],
)
def test_each_command_says_what_is_wrong_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, kind: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = arguments[-1].partition(":")[0]
    make, sentence = IN_ITS_PLACE[kind]
    make(Path(name))
    done = command(*arguments)
    if name == "x.csv" and kind == "folder":
        sentence = "there is no file {path}/records.csv"
    told = tmp_path / name if name == "x.py" else name
    assert (done.returncode, done.stderr) == (2, f"ctxbench: {sentence.format(path=told)}\n")


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow, as on a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_empty_file(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(UsageError, match=r"cannot write to .*x\.py: File too large"):
        disk.write(tmp_path / "x.py", "text", "x")
    assert [*tmp_path.iterdir()] == []
    disk.write(tmp_path / "x.py", "text", "x")
    with pytest.raises(UsageError, match=r"x\.py already exists and was not changed"):
        disk.write(tmp_path / "x.py", "other", "x")
    disk.write(tmp_path / "x.py", " \udcff", "a")
    with full_disk(), pytest.raises(UsageError, match="File too large"):
        disk.write(tmp_path / "x.py", "more", "a")
    assert (tmp_path / "x.py").read_text() == "text \\udcff"


def test_new_leaves_nothing_on_a_full_disk(tmp_path: Path, command: Command) -> None:
    with full_disk():
        done = command("new", tmp_path / "x.py")
    assert (done.returncode, done.stderr) == (2, f"ctxbench: cannot write to {tmp_path / 'x.py'}: File too large\n")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("error", [UsageError("busy"), KeyboardInterrupt()])
def test_a_place_is_given_back_if_nothing_comes_of_it(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "x.toml"

    def fail() -> None:
        with disk.claimed(path):
            assert path.exists()
            raise error

    with pytest.raises(type(error)):
        fail()
    assert not path.exists()
    with disk.claimed(path):
        disk.write(path, "a = 1\n")
    assert path.read_text() == "a = 1\n"


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_nothing_is_written_into_what_is_no_file(tmp_path: Path, kind: str) -> None:
    make, sentence = IN_ITS_PLACE[kind]
    make(tmp_path / "x")
    for write in (disk.write, lambda path, text: disk.check_place(path)):
        with pytest.raises(UsageError) as caught:
            write(tmp_path / "x", "text")
        assert str(caught.value) == sentence.format(path=tmp_path / "x").replace("read", "write to")


def test_a_folder_may_not_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="x: it is a file, not a folder"):
        disk.make_folder(tmp_path / "x")
    with pytest.raises(UsageError, match="y: Not a directory"):
        disk.make_folder(tmp_path / "x" / "y")


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path, link = tmp_path / "x.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    with full_disk(), pytest.raises(UsageError, match="File too large"):
        disk.write(link, "new", is_named=True)
    assert (path.read_text(), sorted(each.name for each in tmp_path.iterdir())) == ("old", ["link.json", "x.json"])
    disk.write(link, "new", is_named=True)
    assert (path.read_text(), path.stat().st_mode & 0o777, link.is_symlink()) == ("new", 0o640, True)


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_a_file_with_the_longest_name_is_written(tmp_path: Path, name: str) -> None:
    disk.write(tmp_path / name, "text")
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_new_file_has_the_rights_of_any_other(tmp_path: Path) -> None:
    disk.write(tmp_path / "x", "")
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", disk.MOST_BYTES + 1)
    with pytest.raises(UsageError, match=r"cannot read .*x: it has more than 1,073,741,824 bytes"):
        disk.read_text(tmp_path / "x")


def test_a_key_that_is_there_twice_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"a": 1, "b": {"c": 1, "c": 2}}')
    with pytest.raises(UsageError, match="x is not JSON: the key 'c' is there twice"):
        disk.read_json(tmp_path / "x")


@pytest.mark.processes
def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "ctxbench-of-a-person").mkdir()
    (tmp_path / "elsewhere" / "ctxbench-link").mkdir(parents=True)
    (tmp_path / "ctxbench-link").symlink_to(tmp_path / "elsewhere" / "ctxbench-link")
    # A killed run, whose lock stays; then folders with marks that are not of `temporary_folder`.
    marks = {
        "ctxbench-night": None,
        "ctxbench-empty": b"",
        "ctxbench-copy": b"%s/ctxbench-other",
        "ctxbench-sent": b"%s/ctxbench-sent\n1",
    }
    for name, mark in marks.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / temporary.LOCK).touch()
        (tmp_path / name / "text").write_text("of a person")
        if mark is not None:
            (tmp_path / name / temporary.MARK).write_bytes(mark.replace(b"%s", bytes(tmp_path)))
    (tmp_path / "ctxbench-link" / temporary.LOCK).touch()
    (tmp_path / "ctxbench-link" / temporary.MARK).write_bytes(temporary.mark_of(tmp_path / "ctxbench-link"))
    for name, linked in (("ctxbench-a", temporary.MARK), ("ctxbench-b", temporary.LOCK)):
        (tmp_path / name).mkdir()
        (tmp_path / name / temporary.LOCK).touch()
        (tmp_path / name / temporary.MARK).write_bytes(temporary.mark_of(tmp_path / name))
        (tmp_path / name / linked).rename(tmp_path / "elsewhere" / linked)
        (tmp_path / name / linked).symlink_to(tmp_path / "elsewhere" / linked)
    (tmp_path / "elsewhere" / temporary.LOCK).write_text("a thesis")
    script = (
        "import os, sys, tempfile\nfrom ctxbench.base.temporary import temporary_folder\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "with temporary_folder() as folder:\n    print(folder, flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        there = Path(process.stdout.readline().strip())
        with temporary.temporary_folder():
            assert there.is_dir()  # its process lives
        process.kill()
    assert there.is_dir()
    with temporary.temporary_folder() as own:
        assert not there.exists()
    assert not own.exists()
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {*marks, "ctxbench-of-a-person", "ctxbench-link", "ctxbench-a", "ctxbench-b", "elsewhere"}
    assert (tmp_path / "ctxbench-link" / temporary.LOCK).exists()
    assert all((tmp_path / name / "text").read_text() == "of a person" for name in marks)
    assert (tmp_path / "elsewhere" / temporary.LOCK).read_text() == "a thesis"


def test_the_empty_folder_of_the_compiler_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "a:b")
    folder = tmp_path / "torchinductor_a_b"
    temporary.remove_compiler_folder()
    folder.mkdir()
    temporary.remove_compiler_folder()
    assert not folder.exists()
    (folder / "kernel").mkdir(parents=True)
    temporary.remove_compiler_folder()
    assert (folder / "kernel").exists()
