"""The gate's two source trees, on real git repositories: right files, nothing touched, nothing left."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import wait_until

from ctxbench.base.errors import UsageError
from ctxbench.plugins.trees.trees import Tree, baseline_tree, working_tree

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

ENTER = """
import signal, sys, time
from pathlib import Path
from ctxbench.plugins.trees.trees import baseline_tree, working_tree
signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command line does
with baseline_tree(working_tree(Path(sys.argv[1])), "HEAD") as tree:
    print(tree.root, flush=True)
    time.sleep(600)
"""

# A module with `width` parameters; its line of MACs and memory does not depend on them.
BLOCK = """
import torch
from torch import nn
{imports}

class {name}(nn.Module):
    def __init__(self, channels):
        super().__init__()
        {body}
        self.weight = nn.Parameter(torch.ones({width}, 1))

    def forward(self, x):
        return x * self.weight.sum()
"""
# Git as on a machine without configuration, that finds no repository above a test's folder.
OWN_GIT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": os.path.realpath(tempfile.gettempdir()),
}


def source(name: str, width: int | str = 2, imports: str = "", body: str = "") -> str:
    return BLOCK.format(name=name, width=width, imports=imports, body=body)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *arguments]
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**others, **OWN_GIT})
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str | bytes], message: str = "change") -> str:
    """Write files, commit everything that is there, and return the commit's name."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def new_repository(root: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with a repository whose one commit has these files."""
    root.mkdir(exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, files)
    return root


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file and link under a folder."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in paths
    }


def state(folder: Path) -> dict[str, object]:
    """All there is to a user's repository: its files, the index, objects, refs, logs, stashes and configuration."""
    everything = contents(folder)
    common = Path(git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    return {
        "files": everything,
        "git": contents(common),
        "status": git(folder, "--no-optional-locks", "status", "--porcelain"),
        "stashes": git(folder, "stash", "list"),
        "worktrees": git(folder, "worktree", "list", "--porcelain"),
    }


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary folders, here and in child processes."""
    folder = tmp_path / "temporary folder"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _own_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in OWN_GIT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


@pytest.fixture(scope="module")
def made_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits on `main`, then a stash, a staged, an unstaged and an untracked change."""
    files: dict[str, str | bytes] = {"block.py": "width = 1\n", "pack/größe 1.txt": "old\n", "gone.py": ""}
    folder = new_repository(tmp_path_factory.mktemp("made") / "räpo with spaces", files)
    (folder / "gone.py").unlink()
    commit(folder, {"block.py": "width = 2\n"})
    (folder / "block.py").write_text("width = 2.5\n")
    git(folder, "stash")
    (folder / "block.py").write_text("width = 3\n")
    (folder / "staged.py").write_text("new = 1\n")
    git(folder, "add", "staged.py")
    (folder / "untracked.py").write_text("")
    return folder


@pytest.fixture
def repository(made_repository: Path, tmp_path: Path, temporary: Path) -> Path:
    """A copy of `made_repository` for one test, that has its own folder for temporary folders."""
    return Path(shutil.copytree(made_repository, tmp_path / made_repository.name, symlinks=True))


def refusal(folder: Path, ref: str = "HEAD") -> str:
    """The sentence with which a comparison is refused."""
    with pytest.raises(UsageError) as caught, baseline_tree(working_tree(folder), ref):
        pass
    return str(caught.value)


def test_baseline_has_the_commits_files_and_the_users_repository_stays_as_it_was(
    repository: Path, temporary: Path
) -> None:
    first = git(repository, "rev-parse", "HEAD~1")
    before = state(repository)
    tree = working_tree(repository)
    assert tree == Tree(repository, "the working tree")
    with baseline_tree(tree, "main~1") as baseline:
        assert baseline.name == f"main~1 ({first[:10]})"
        assert baseline.root.is_relative_to(temporary)
        assert contents(baseline.root) == {"block.py": b"width = 1\n", "pack/größe 1.txt": b"old\n", "gone.py": b""}
        assert state(repository) == before
        (baseline.root / "__pycache__").mkdir()
    assert list(temporary.iterdir()) == []
    assert state(repository) == before
    assert (repository / "block.py").read_text() == "width = 3\n"


def test_anything_that_leads_to_a_commit_is_a_reference(repository: Path) -> None:
    git(repository, "tag", "v1")
    git(repository, "tag", "--annotate", "--message", "x", "annotated")
    for ref in ("main", "HEAD", "v1", "annotated", "stash", "HEAD^{/change}"):
        with baseline_tree(working_tree(repository), ref) as baseline:
            assert (baseline.root / "block.py").read_text() == f"width = {2.5 if ref == 'stash' else 2}\n"


def test_a_commits_own_name_is_not_said_twice(repository: Path) -> None:
    full = git(repository, "rev-parse", "HEAD")
    for ref in (full, full[:8]):
        with baseline_tree(working_tree(repository), ref) as baseline:
            assert baseline.name == full[:10]


def test_a_failure_inside_passes_through_and_leaves_nothing(repository: Path, temporary: Path) -> None:
    before = state(repository)
    with pytest.raises(KeyboardInterrupt), baseline_tree(working_tree(repository), "HEAD"):
        raise KeyboardInterrupt
    assert list(temporary.iterdir()) == []
    assert state(repository) == before


def test_start_in_a_subfolder(repository: Path) -> None:
    assert working_tree(repository / "pack").root == repository


def test_a_linked_worktree_is_a_working_tree(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(linked))
    commit(linked, {"block.py": "width = 9\n"})
    before = state(linked)
    tree = working_tree(linked)
    assert tree.root == linked
    with baseline_tree(tree, "side") as baseline:
        assert (baseline.root / "block.py").read_text() == "width = 9\n"
    assert state(linked) == before


def test_inside_a_git_hook_the_hooks_repository_is_not_taken_for_the_users(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_repository(tmp_path / "other", {"other.py": ""})
    before = state(repository), state(other)
    with monkeypatch.context() as hook:
        hook.setenv("GIT_DIR", str(other / ".git"))
        hook.setenv("GIT_WORK_TREE", str(other))
        hook.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
        hook.setenv("GIT_PREFIX", "pack/")
        tree = working_tree(repository)
        assert tree.root == repository
        with baseline_tree(tree, "HEAD") as baseline:
            assert (baseline.root / "block.py").read_text() == "width = 2\n"
    assert (state(repository), state(other)) == before


def test_a_hook_of_the_user_does_not_run(repository: Path, tmp_path: Path) -> None:
    for name in ("post-checkout", "post-index-change"):
        hook = repository / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        hook.chmod(0o755)
    with baseline_tree(working_tree(repository), "HEAD"):
        pass
    assert not (tmp_path / "ran").exists()


def test_settings_that_write_into_the_repository_or_leave_files_out(repository: Path) -> None:
    git(repository, "config", "core.splitIndex", "true")
    git(repository, "sparse-checkout", "set", "--no-cone", "/block.py")
    before = state(repository)
    with baseline_tree(working_tree(repository), "HEAD") as baseline:
        assert (baseline.root / "pack" / "größe 1.txt").read_text() == "old\n"
    assert state(repository) == before


def test_line_ends_filters_links_and_modes_are_the_commits_own(repository: Path) -> None:
    git(repository, "config", "filter.loud.smudge", "tr a-z A-Z")
    git(repository, "config", "filter.loud.clean", "cat")
    (repository / "link.py").symlink_to("block.py")
    (repository / "run.sh").write_text("")
    (repository / "run.sh").chmod(0o755)
    attributes = "*.bat text eol=crlf\n*.loud filter=loud\nkept.txt export-ignore\n"
    commit(repository, {".gitattributes": attributes, "a.bat": "x\r\ny\r\n", "b.loud": "word\n", "kept.txt": ""})
    (repository / ".gitattributes").write_text("*.bat text eol=lf\n")
    with baseline_tree(working_tree(repository), "HEAD") as baseline:
        assert (baseline.root / "a.bat").read_bytes() == b"x\r\ny\r\n"
        assert (baseline.root / "b.loud").read_text() == "WORD\n"
        assert os.readlink(baseline.root / "link.py") == "block.py"
        assert os.access(baseline.root / "run.sh", os.X_OK)
        assert not os.access(baseline.root / "block.py", os.X_OK)
        assert (baseline.root / "kept.txt").exists()


def test_a_filter_that_fails_is_told_and_nothing_is_left(repository: Path, temporary: Path) -> None:
    commit(repository, {".gitattributes": "*.big filter=store\n", "a.big": "pointer\n"})
    git(repository, "config", "filter.store.smudge", "echo no such store >&2; false")
    git(repository, "config", "filter.store.clean", "cat")
    git(repository, "config", "filter.store.required", "true")
    assert "no such store" in refusal(repository)
    assert list(temporary.iterdir()) == []


def test_an_empty_commit_is_an_empty_tree(repository: Path) -> None:
    git(repository, "reset", "--hard", "--quiet")
    git(repository, "rm", "-r", "--quiet", ".")
    (repository / "untracked.py").unlink()
    git(repository, "commit", "--quiet", "--message", "nothing")
    with baseline_tree(working_tree(repository), "HEAD") as baseline:
        assert contents(baseline.root) == {}


@pytest.fixture(scope="module")
def made_nested(made_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the submodule `libs/sub`, that has the submodule `deep`; each has two commits."""
    origins = tmp_path_factory.mktemp("origins")
    for name in ("deep", "sub"):
        new_repository(origins / name, {f"{name}.py": "level = 1\n"})
    git(origins / "sub", "submodule", "--quiet", "add", str(origins / "deep"), "deep")
    commit(origins / "sub", {})
    top = Path(shutil.copytree(made_repository, origins / made_repository.name))
    git(top, "submodule", "--quiet", "add", str(origins / "sub"), "libs/sub")
    git(top, "submodule", "--quiet", "update", "--init", "--recursive")
    commit(top, {})
    (top / "libs" / "index").write_text("no index of git's\n")
    commit(top / "libs" / "sub" / "deep", {"deep.py": "level = 2\n"})
    commit(top / "libs" / "sub", {"sub.py": "level = 2\n"})
    commit(top, {})
    return top


@pytest.fixture
def nested(made_nested: Path, tmp_path: Path, temporary: Path) -> Path:
    """A copy of `made_nested` for one test."""
    return Path(shutil.copytree(made_nested, tmp_path / made_nested.name, symlinks=True))


def test_submodules_are_at_the_commits_that_the_baseline_records(nested: Path) -> None:
    (nested / "libs" / "sub" / "__pycache__").mkdir()
    (nested / "libs" / "sub" / "__pycache__" / "sub.pyc").write_bytes(b"x")
    before = state(nested)
    for ref, text in {"HEAD": "level = 2\n", "HEAD~1": "level = 1\n"}.items():
        with baseline_tree(working_tree(nested), ref) as baseline:
            assert (baseline.root / "libs" / "sub" / "sub.py").read_text() == text
            assert (baseline.root / "libs" / "sub" / "deep" / "deep.py").read_text() == text
            names = {path.name for path in (baseline.root / "libs" / "sub").iterdir()}
            assert names == {".gitmodules", "deep", "sub.py"}
            assert (baseline.root / "libs" / "index").exists() == (ref == "HEAD")
    with baseline_tree(working_tree(nested), "HEAD~2") as baseline:
        assert not (baseline.root / "libs").exists()
    assert state(nested) == before


def test_a_submodule_that_is_not_checked_out_is_empty_on_both_sides(nested: Path) -> None:
    git(nested, "submodule", "--quiet", "deinit", "--force", "libs/sub")
    with baseline_tree(working_tree(nested), "HEAD") as baseline:
        assert contents(baseline.root / "libs" / "sub") == contents(nested / "libs" / "sub") == {}


@pytest.mark.parametrize("path", ["sub.py", "deep/deep.py"])
def test_a_submodule_with_uncommitted_changes_is_refused_by_name(nested: Path, path: str) -> None:
    (nested / "libs" / "sub" / path).write_text("level = 3\n")
    assert refusal(nested).startswith("the submodule 'libs/sub' has uncommitted changes or is not at the recorded")


def test_a_submodule_at_another_commit_is_refused_until_it_is_staged(nested: Path) -> None:
    commit(nested / "libs" / "sub", {"sub.py": "level = 3\n"})
    assert "'libs/sub'" in refusal(nested)
    git(nested, "add", "libs/sub")
    assert working_tree(nested).root == nested


def test_a_submodules_commit_that_was_never_fetched(nested: Path, temporary: Path) -> None:
    missing = "1234567890" * 4
    git(nested, "update-index", "--cacheinfo", f"160000,{missing},libs/sub")
    git(nested, "commit", "--quiet", "--message", "from elsewhere")
    git(nested, "update-index", "--cacheinfo", f"160000,{git(nested / 'libs/sub', 'rev-parse', 'HEAD')},libs/sub")
    sentence = refusal(nested)
    assert sentence.startswith("the submodule 'libs/sub' lacks the commit 1234567890 ")
    assert f"`git -C libs/sub fetch origin {missing}`" in sentence
    assert list(temporary.iterdir()) == []


def test_what_cannot_be_a_reference(made_repository: Path) -> None:
    for ref in ("", " ", "--all", "-n1", "^main"):
        sentence = f"{ref!r} is no git reference; name a commit, a branch or a tag"
        assert refusal(made_repository, ref).startswith(sentence)


def test_an_unknown_reference_gets_the_nearest_name(repository: Path) -> None:
    git(repository, "tag", "release-1")
    assert refusal(repository, "relaese-1").startswith("unknown git reference 'relaese-1'; did you mean 'release-1'?")
    assert refusal(repository, "mian").startswith("unknown git reference 'mian'; did you mean 'main'?")
    assert refusal(repository, "f" * 40).startswith("unknown git reference")
    assert refusal(repository, "main~50").startswith("unknown git reference")
    assert refusal(repository, "main..v1").startswith("unknown git reference")


def test_a_reference_to_something_else_than_a_commit(repository: Path) -> None:
    git(repository, "tag", "--annotate", "--message", "x", "tagged", "HEAD:block.py")
    for ref, kind in {"HEAD:block.py": "blob", "HEAD^{tree}": "tree", "tagged": "tag"}.items():
        assert refusal(repository, ref) == f"{ref!r} leads to a {kind}, not to a commit"


def test_a_branch_that_only_the_remote_has(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "feature/fast")
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    sentence = "there is no local branch 'feature/fast'; did you mean 'origin/feature/fast'?"
    assert refusal(tmp_path / "clone", "feature/fast") == sentence
    with baseline_tree(working_tree(tmp_path / "clone"), "origin/feature/fast") as baseline:
        assert (baseline.root / "block.py").exists()


def test_a_shallow_clone_without_the_commit(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "v1", "HEAD~1")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "clone")
    for ref in ("HEAD~1", "v1"):
        assert refusal(tmp_path / "clone", ref) == (
            f"this clone is shallow and does not contain {ref!r}; run `git fetch --unshallow` first "
            "(with GitHub's actions/checkout: `fetch-depth: 0`)"
        )
    with baseline_tree(working_tree(tmp_path / "clone"), "HEAD") as baseline:
        assert (baseline.root / "block.py").read_text() == "width = 2\n"


def test_a_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "new")
    sentence = f"the repository {tmp_path / 'new'} has no commit yet, so there is nothing to compare against"
    assert refusal(tmp_path / "new") == sentence
    assert refusal(tmp_path / "new", "main") == sentence


def test_places_without_a_working_tree(repository: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path} is not in a git repository")
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    for folder in (tmp_path / "bare.git", repository / ".git"):
        assert refusal(folder).startswith(f"{folder} is in a bare git repository, or in a .git folder")
    assert "nowhere" in refusal(tmp_path / "nowhere")


def test_a_repository_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A variable of git's own tests, which makes every folder another user's.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    sentence = refusal(repository)
    assert sentence.startswith(f"git does not trust {repository}, which another user owns")
    assert f"`git config --global --add safe.directory {repository}`" in sentence
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repository))
    assert working_tree(repository).root == repository


def test_git_not_installed(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(repository).startswith("git is not installed or not on PATH")


# A git that fails to write as on a full disk, after its first file.
FULL = """#!/bin/sh
case "$*" in *read-tree*) touch "$GIT_WORK_TREE/block.py"; echo '{said}' >&2; exit 128;; esac
exec '{git}' "$@"
"""


def test_a_full_disk(repository: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, fake = shutil.which("git"), tmp_path / "bin" / "git"
    fake.parent.mkdir()
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    for said in (
        "error: unable to write file gone.py: No space left on device",
        "fatal: write error. Out of diskspace",
        "fatal: unable to write new index file",
        "error: file write error: Disk quota exceeded",
    ):
        fake.write_text(FULL.format(said=said, git=real))
        fake.chmod(0o755)
        sentence = refusal(repository)
        assert sentence.startswith("git cannot write the baseline's files into ")
        assert sentence.endswith(f"({said}); set TMPDIR to a roomier folder")
        assert list(temporary.iterdir()) == []


def test_no_place_for_temporary_folders(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "removed"))
    sentence = refusal(repository)
    assert sentence.startswith("cannot make a temporary folder (")
    assert f"{tmp_path / 'removed'}/" in sentence
    assert sentence.endswith("; set TMPDIR to a folder with free space")

    def none_usable() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none_usable)
    assert "No usable temporary directory found in ['/tmp']); set TMPDIR" in refusal(repository)


def enter(repository: Path) -> subprocess.Popen[str]:
    """A process, in a session of its own, that takes the baseline tree and stays in it."""
    return subprocess.Popen(
        [sys.executable, "-c", ENTER, str(repository)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def slow(repository: Path, tmp_path: Path) -> Iterator[Path]:
    """A repository whose checkout says that it has begun, and goes on when `go` is there."""
    commit(repository, {".gitattributes": "*.slow filter=slow\n", "a.slow": "", "z.slow": ""})
    wait = f"touch '{tmp_path}/begun'; while [ ! -e '{tmp_path}/go' ]; do sleep 0.02; done; cat"
    git(repository, "config", "filter.slow.smudge", wait)
    yield repository
    (tmp_path / "go").touch()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_during_the_checkout_nothing_is_left(
    slow: Path, temporary: Path, tmp_path: Path, number: signal.Signals
) -> None:
    before = state(slow)
    with enter(slow) as process:
        wait_until((tmp_path / "begun").exists)
        os.killpg(process.pid, number)
        process.wait()
        assert list(temporary.iterdir()) == []
    assert state(slow) == before
