"""The two source trees of a gate: the user's working tree, and the files of one commit of it in a temporary folder."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ctxbench.base import disk, git
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.temporary import temporary_folder


class NoRepository(UsageError):
    """The folder is in no git repository, or there is no git."""


@dataclass(frozen=True)
class Modules:
    """Source of modules, with a name for a person; without a root, from what is installed."""

    root: Path | None
    name: str


@dataclass(frozen=True)
class Tree(Modules):
    """A source tree on disk, and its name for a person ("main (1a2b3c4d5e)", "the working tree")."""

    root: Path


def working_tree(start: Path) -> Tree:
    """The working tree of the git repository around the folder `start`.

    Raises UsageError if there is none, if git refuses it, or if a submodule's tracked files differ from the commit that
    is recorded for it: a commit of the repository cannot say which files those are.
    """
    root = _root(start)
    changed = _git(root, "diff-files", "--raw", "-z", "--ignore-submodules=untracked").split("\0")
    for entry, path in zip(changed[::2], changed[1::2], strict=False):
        # ":<mode in the index> <mode on disk> <object> <object> <status>"; 160000 is a submodule
        if entry.startswith(":160000 160000 "):
            raise UsageError(
                f"the submodule {path!r} has uncommitted changes or is not at the recorded commit; "
                f"commit in it and `git add {path}`, or reset it with `git submodule update`"
            )
    return Tree(root, "the working tree")


def modules_here() -> Modules:
    """Modules of the git repository around the working folder, whatever its submodules are at; else the installed.

    Raises UsageError if git refuses the repository.
    """
    try:
        return Tree(_root(Path.cwd()), "the working tree")
    except NoRepository:
        return Modules(None, "the installed modules")


@dataclass(frozen=True)
class Commit:
    """A commit: its whole name, its day (YYYY-MM-DD) and the first line of its message."""

    name: str
    day: str
    subject: str

    @property
    def short(self) -> str:
        return self.name[:10]


def commits(repository: Tree, span: str) -> list[Commit]:
    """The commits of a range such as `v1..main`, or up to a commit, along first parents, the newest first.

    Raises UsageError if the range names no commit of the repository, or holds none.
    """
    for end in filter(None, re.split(r"\.{2,3}", span)):
        _resolve(repository.root, end)
    log = _git(repository.root, "log", "--first-parent", "--format=%H%x09%cs%x09%s", "--end-of-options", span, "--")
    if not log:
        raise UsageError(f"the range {span!r} holds no commit")
    return [Commit(*line.split("\t", 2)) for line in log.split("\n")]


def last_change(repository: Tree, commit: str, files: Iterable[str]) -> str:
    """The name of the last commit, from `commit` along first parents, that changed one of these files; empty if none.

    Files are named from the root. One of a submodule changes where the commit that is recorded for that one does.
    """
    listed = _git(repository.root, "ls-tree", "-r", "-z", commit).split("\0")
    submodules = [entry.partition("\t")[2] for entry in listed if entry.startswith("160000 ")]
    paths = {next((each for each in submodules if file.startswith(f"{each}/")), file) for file in files}
    return _git(repository.root, "log", "--first-parent", "-1", "--format=%H", commit, "--", *sorted(paths))


def adapters_of(repository: Tree, paths: Iterable[str | Path]) -> dict[str, bytes]:
    """The files that take their place in each commit, by their names from the root. UsageError for one outside."""
    found = {}
    for path in map(Path, paths):
        content, whole = disk.read_bytes(path), disk.whole(path)
        if not whole.is_relative_to(repository.root.resolve()):
            raise UsageError(f"the adapter {path} lies outside the repository {repository.root}: put it inside")
        found[whole.relative_to(repository.root.resolve()).as_posix()] = content
    return found


@contextmanager
def baseline_tree(repository: Tree, ref: str, adapters: Mapping[str, bytes] = MappingProxyType({})) -> Iterator[Tree]:
    """The files of the commit `ref` in a temporary folder, which is removed when the context ends.

    `adapters` (see `adapters_of`) stand there instead of the commit's own files, or beside them.

    Line ends, filters and symbolic links are as in a checkout of that commit. Submodules are taken from where the
    working tree has them; one that is not checked out there is an empty folder here too. The user's index, files, refs
    and configuration are neither changed nor locked.

    Raises UsageError if `ref` is no commit of the repository or its files cannot be written.
    """
    commit = _resolve(repository.root, ref)
    name = commit[:10] if len(ref) > 6 and commit.startswith(ref) else f"{ref} ({commit[:10]})"
    with temporary_folder() as folder:
        root = folder / "tree"
        disk.make_folder(root)
        _export(repository.root, commit, root, folder / "index")
        for path, content in adapters.items():
            disk.make_folder((root / path).parent)
            (root / path).unlink(missing_ok=True)  # a link would be written through
            disk.write(root / path, content)
        yield Tree(root, name)


def _export(source: Path, commit: str, destination: Path, index: Path) -> None:
    """Write the files of a commit, and of the submodules it records, into an empty folder; `index` is a new file.

    A clone would lose what belongs to this repository alone: the filters of its configuration, what a partial clone
    has yet to fetch, and in a shallow clone the commits that no branch leads to, such as a stash.
    """
    # With the destination as the working tree, .gitattributes are the commit's own and not the user's edited ones.
    _git(
        destination,
        *("read-tree", "-u", "--reset", commit),
        GIT_DIR=_git(source, "rev-parse", "--absolute-git-dir"),
        GIT_WORK_TREE=str(destination),
        GIT_INDEX_FILE=str(index),
    )
    index.unlink()
    for entry in _git(source, "ls-tree", "-r", "-z", commit).split("\0"):
        # "<mode> <type> <object>\t<path>"
        facts, _, path = entry.partition("\t")
        if not facts.startswith("160000 ") or not (source / path / ".git").exists():
            continue
        recorded = facts.split(" ")[2]
        if _ask(source / path, "cat-file", "-e", f"{recorded}^{{commit}}") is None:
            raise UsageError(
                f"the submodule {path!r} lacks the commit {recorded[:10]} that the baseline records; "
                f"fetch it with `git -C {path} fetch origin {recorded}`"
            )
        _export(source / path, recorded, destination / path, index)


def _resolve(root: Path, ref: str) -> str:
    """The full name of the commit that `ref` leads to."""
    if not ref.strip() or ref.startswith(("-", "^")):
        raise UsageError(f"{ref!r} is no git reference; name a commit, a branch or a tag, such as main or HEAD~1")
    verify = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    commit = _ask(root, *verify, f"{ref}^{{commit}}")
    if commit is not None:
        return commit
    found = _ask(root, *verify, ref)
    kind = found and _ask(root, "cat-file", "-t", found)
    if kind:
        raise UsageError(f"{ref!r} leads to a {kind}, not to a commit")
    local = _git(root, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/tags").splitlines()
    remote = _git(root, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/remotes").splitlines()
    if not local and not remote and _ask(root, *verify, "HEAD") is None:
        raise UsageError(f"the repository {root} has no commit yet, so there is nothing to compare against")
    for name in remote:
        if name.partition("/")[2] == ref:
            raise UsageError(f"there is no local branch {ref!r}; did you mean {name!r}?")
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        raise UsageError(
            f"this clone is shallow and does not contain {ref!r}; run `git fetch --unshallow` first "
            "(with GitHub's actions/checkout: `fetch-depth: 0`)"
        )
    raise unknown("git reference", ref, [*local, *remote])


def _root(start: Path) -> Path:
    return Path(_git(start, "rev-parse", "--show-toplevel"))


def _ask(folder: Path, *arguments: str) -> str | None:
    """Output of git, or None if it fails."""
    done = _run(folder, *arguments)
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else None


def _git(folder: Path, *arguments: str, **variables: str) -> str:
    """Output of git. Raises UsageError with a remedy if git fails."""
    done = _run(folder, *arguments, **variables)
    if done.returncode == 0:
        return os.fsdecode(done.stdout).strip("\n")
    message = done.stderr.decode(errors="replace").strip()
    if "safe.directory" in message:
        owned = re.search(r"repository at '(.+)'", message)
        path = owned[1] if owned else folder
        raise UsageError(
            f"git does not trust {path}, which another user owns; run `git config --global --add safe.directory {path}`"
        )
    if "not a git repository" in message:
        raise NoRepository(f"{folder} is not in a git repository; go into the repository to check, or `git init`")
    if "run in a work tree" in message:
        raise UsageError(
            f"{folder} is in a bare git repository, or in a .git folder: there is no working tree to check"
        )
    # Of a full disk git says "write error. Out of diskspace", "unable to write new index file" and more.
    if arguments[0] == "read-tree" and re.search(r"\b(write|(disk)?space|quota)\b", message):
        said = message.splitlines()[0]
        raise UsageError(
            f"git cannot write the baseline's files into {folder} ({said}); set TMPDIR to a roomier folder"
        )
    raise UsageError(f"`git {arguments[0]}` failed in {folder}: {message}")


def _run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return git.run(folder, *arguments, may_fetch=True, **variables)
    except FileNotFoundError:
        raise NoRepository("git is not installed or not on PATH; it is needed to compare with a commit") from None
