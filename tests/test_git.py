"""No settings of a repository have ctxbench's git run a program, and a file's state is told by its hash."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from conftest import Done

from ctxbench.base import git
from ctxbench.results.sources import commit_of

# Of these keys no value is a text. Other keys than texts are those that git refuses.
NO_TEXT = re.compile(r"(advice|color|column|commitgraph|core\.fsync|diff|fsck|gc|index|pack|status)\w*\.\w+$")
# These say which repository it is.
PLACE = re.compile(r"extensions\.|core\.(bare|repositoryformatversion|worktree)$")
FURTHER = ("core.pager", "filter.evil.process", "hook.evil.command", "alias.ls-files", "alias.rev-parse", "pager.log")
FIXED = {
    "protocol.ext.allow": "always",
    "log.showsignature": "true",
    "extensions.partialclone": "evil",
    "remote.evil.promisor": "true",
}
LACKING = "1" * 40
ASKED = (
    *(("rev-parse", "HEAD"), ("ls-files", "--error-unmatch", "tiny.toml"), ("ls-tree", "-r", "-z", "HEAD")),
    *(("log", "--format=%H", "HEAD", "--"), ("for-each-ref",), ("cat-file", "-e", LACKING)),
)


def call(folder: Path, *words: str, given: str = "") -> str:
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, check=True, input=given, capture_output=True, text=True)
    return done.stdout.strip()


def keys() -> list[str]:
    """Each key that this git lists, `evil` for the names in it, but those whose value is no text."""
    found = [key for key in call(Path(), "help", "--config").splitlines() if re.fullmatch(r"[a-zA-Z].*\.[\w-]+", key)]
    assert len(found) > 500
    # A name with "_" is one of gitweb's, and no key of git.
    whole = {re.sub(r"<[^>]+>|\*", "evil", key).lower() for key in found if "_" not in key}
    assert {"core.fsmonitor", "filter.evil.clean", "gpg.program", "remote.evil.uploadpack"} <= whole
    is_text = [key for key in whole if "hook" in key or not NO_TEXT.match(key)]
    return sorted({*is_text, *FURTHER} - {key for key in whole if PLACE.match(key)})


class Evil:
    """A repository whose settings, attributes and hooks name programs that leave a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ran = folder, folder.with_name("ran")
        folder.mkdir()
        call(folder, "init", "--quiet")
        self.suite = folder / "tiny.toml"
        self.suite.write_text('title = "tiny"\nmodules = ["se"]\nmetrics = ["params"]\n[axes]\nshape = [1, 16, 4, 4]\n')
        (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        call(folder, "add", ".")
        call(folder, "commit", "--quiet", "--message", "a suite")
        # A signature, which `git log` has checked by a program.
        head, _, rest = call(folder, "cat-file", "commit", "HEAD").partition("\n\n")
        signed = f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n{rest}\n"
        self.commit = call(folder, "hash-object", "-t", "commit", "-w", "--stdin", given=signed)
        call(folder, "reset", "--quiet", "--soft", self.commit)
        hook = folder / ".git" / "hooks" / "post-index-change"
        Path(self.program("hook")).rename(hook)
        self.usual = (folder / ".git" / "config").read_text()
        self.settings = {key: self.program(key) for key in keys()} | FIXED
        self.settings["remote.evil.url"] = f"ext::sh -c mkdir% -p% {self.ran}/ext"

    def program(self, key: str) -> str:
        """A program that leaves the name of a key; git starts some by a shell, others itself."""
        program = self.folder.with_name("programs") / key.replace(".", "-")
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nmkdir -p {self.ran}/{program.name}\ncat\n")
        program.chmod(0o755)
        return str(program)

    def write(self) -> None:
        text = self.usual
        for key, value in self.settings.items():
            section, _, name = key.rpartition(".")
            section, _, sub = section.partition(".")
            text += f'[{section} "{sub}"]\n' if sub else f"[{section}]\n"
            text += f'\t{name} = "{value}"\n'
        (self.folder / ".git" / "config").write_text(text)
        self.suite.touch()  # what git keeps of its times is old: `git status` reads it again

    def run_by_plain_git(self) -> set[str]:
        """The programs that git runs by itself. A setting that it refuses is taken out: its value is no text."""
        for words in (*ASKED, ("status",)):
            while True:
                self.write()
                done = subprocess.run(["git", "-C", self.folder, *words], check=False, capture_output=True, text=True)
                if done.returncode == 0 or not (refused := self.refused(done.stderr)):
                    break
                del self.settings[refused]
            assert done.returncode == 0 or LACKING in words, done.stderr
        found = {each.name for each in self.ran.iterdir()}
        shutil.rmtree(self.ran)
        self.write()
        return found

    def refused(self, said: str) -> str:
        lines = [line.lower() for line in said.splitlines() if line.startswith(("fatal:", "error:", "git:"))]
        free = self.settings.keys() - {*FIXED, "remote.evil.url"}
        named = [key for key in free for line in lines if key in line or self.settings[key].lower() in line]
        return max(named, key=len, default="")

    def without(self, names: Iterable[str]) -> None:
        for name in names:
            self.settings.pop(name)


@pytest.fixture
def evil(tmp_path: Path) -> Evil:
    return Evil(tmp_path / "received")


def test_no_setting_runs_a_program(evil: Evil) -> None:
    ran: set[str] = set()
    for dropped in ((), ("filter.evil.process", "core.hookspath")):
        evil.without(dropped)
        ran |= evil.run_by_plain_git()
        assert commit_of(evil.suite, evil.folder) == evil.commit
        text = evil.suite.read_text()
        evil.suite.write_text(text.replace("tiny", "Tiny"))  # of the same size: git must read it
        assert commit_of(evil.suite, evil.folder) == f"{evil.commit}+changes"
        evil.suite.write_text(text)
        answers = [git.run(evil.folder, *words) for words in ASKED]
        assert [each.returncode for each in answers[:-1]] == [0] * 5, answers
        assert not evil.ran.exists(), [*evil.ran.iterdir()]
    assert {"core-fsmonitor", "filter-evil-process", "filter-evil-clean", "ext", "hook"} < ran
    assert any("gpg" in each for each in ran)


@pytest.mark.processes
def test_a_suite_of_such_a_repository_runs_nothing(evil: Evil, tmp_path: Path, command: Callable[..., Done]) -> None:
    evil.run_by_plain_git()
    done = command("run", "--suite", evil.suite, "--static", "--out", tmp_path / "new")
    assert (done.returncode, evil.ran.exists()) == (0, False), done.stderr


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
