"""No settings of a repository have ctxbench's git run a program, and a file's state is told by its hash."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from ctxbench.base import git
from ctxbench.results.sources import commit_of

# Keys of `git help --config` whose value may be a program, by their names; further ones that hold it otherwise.
NAMED = re.compile(
    "cmd|command|program|editor|pager|helper|proxy$|hook|askpass|textconv|driver$|clean|smudge|process|external"
    "|fsmonitor$|receivepack|uploadpack$|vcs|browser|submodule.*update$",
    re.IGNORECASE,
)
# Of these the value is no text, and git would stop at it.
NO_TEXT = re.compile(
    "cachetextconv|HookVersion|CommitBefore|advice|color|gitmodules|pager$|guitool|vcs$", re.IGNORECASE
)
FURTHER = ("filter.evil.process", "hook.evil.command", "alias.ls-files", "alias.rev-parse")


def call(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


def keys() -> list[str]:
    found = call(Path(), "help", "--config").splitlines()
    programs = [key for key in found if NAMED.search(key) and not NO_TEXT.search(key)]
    assert {"core.fsmonitor", "filter.<driver>.clean", "gpg.program", "remote.<name>.uploadpack"} <= {*programs}
    return [*(re.sub(r"<\w+>|\*", "evil", key) for key in programs), "core.pager", *FURTHER]


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A repository whose settings, attributes and hooks name programs that leave a mark."""
    folder = tmp_path / "received"
    folder.mkdir()
    call(folder, "init", "--quiet")
    (folder / "tiny.toml").write_text(
        'title = "tiny"\nmodules = ["se"]\nmetrics = ["params"]\n[axes]\nshape = [1, 16, 4, 4]\n'
    )
    (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    call(folder, "add", ".")
    call(folder, "commit", "--quiet", "--message", "a suite")
    for key in keys():
        ran = tmp_path / "ran" / key.replace(".", "-")
        call(folder, "config", key, f"mkdir -p {ran}; cat")
    call(folder, "config", "log.showSignature", "true")
    call(folder, "config", "protocol.ext.allow", "always")
    call(folder, "config", "extensions.partialClone", "evil")
    call(folder, "config", "remote.evil.url", f"ext::sh -c mkdir% -p% {tmp_path}/ran/ext")
    hook = folder / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\nmkdir -p {tmp_path}/ran/hook\n")
    hook.chmod(0o755)
    (folder / "tiny.toml").touch()  # what git keeps of its times is old: `git status` reads it again
    return folder


def test_no_setting_runs_a_program(evil: Path, tmp_path: Path) -> None:
    suite = evil / "tiny.toml"
    commit = call(evil, "-c", "core.fsmonitor=false", "rev-parse", "HEAD")
    assert commit_of(suite, evil) == commit
    suite.write_text(suite.read_text().replace("tiny", "Tiny"))  # of the same size: git must read it
    assert commit_of(suite, evil) == f"{commit}+changes"
    lacking = ("cat-file", "-e", "1" * 40)
    for asked in (("log", "--format=%H", "HEAD", "--"), ("for-each-ref",), lacking):
        git.run(evil, *asked)
    assert not (tmp_path / "ran").exists()
    # Without it they run.
    unset = [("config", "--unset", key) for key in ("filter.evil.process", "core.hooksPath")]
    commands: list[tuple[str, ...]] = [("status",), *unset, ("status",), lacking]
    for words in commands:
        subprocess.run(["git", "-C", evil, *words], check=False, capture_output=True)
    assert {"core-fsmonitor", "filter-evil-process", "filter-evil-clean", "ext", "hook"} <= {
        each.name for each in (tmp_path / "ran").iterdir()
    }


@pytest.mark.processes
def test_a_suite_of_such_a_repository_runs_nothing(evil: Path, tmp_path: Path, command: Callable[..., Done]) -> None:
    done = command("run", "--suite", evil / "tiny.toml", "--static", "--out", tmp_path / "new")
    assert (done.returncode, (tmp_path / "ran").exists()) == (0, False), done.stderr


@pytest.mark.parametrize("settings", [(), ("init.defaultObjectFormat=sha256",)])
def test_the_state_of_a_file_is_that_of_its_content(tmp_path: Path, settings: tuple[str, ...]) -> None:
    call(tmp_path, "init", "--quiet", *(["--object-format=sha256"] if settings else []))
    file, other, link = tmp_path / "a [x].py", tmp_path / "b.py", tmp_path / "link"
    for each in (file, other):
        each.write_text("a\nb\n")
    link.symlink_to(other)
    assert commit_of(file, file) is None
    call(tmp_path, "add", ".")
    call(tmp_path, "commit", "--quiet", "--message", "files")
    commit = call(tmp_path, "rev-parse", "HEAD")
    assert commit_of(file, tmp_path) == commit
    file.write_bytes(b"a\r\nb\r\n")  # as a checkout with core.autocrlf has it
    assert commit_of(file, tmp_path) == commit
    other.unlink()
    assert (commit_of(file, file), commit_of(file, tmp_path)) == (commit, f"{commit}+changes")
    file.write_text("a\n b\n")
    assert commit_of(file, file) == f"{commit}+changes"
    (tmp_path / "new.py").touch()
    assert commit_of(tmp_path / "new.py", file) is None
    call(tmp_path, "add", "new.py")
    assert commit_of(tmp_path / "new.py", other.parent / "new.py") == f"{commit}+changes"
